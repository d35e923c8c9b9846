//! What a reader finds in the reports of a record, whatever is in it.

mod sample;

use std::collections::BTreeMap;

use lock_bench::record::{Figures, Kind, Measurement, Outcome, Record, Since, Takeover, Times, Workload};
use lock_bench::report::{html, markdown, table};
use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag};
use roxmltree::{Document, Node, ParsingOptions};

use sample::contender;

#[test]
fn a_table_has_the_figures_of_the_record_and_no_others() {
    let mut record = sample::empty();
    record.settings.rounds = 3;
    record.servers = vec![sample::record().servers.swap_remove(2)];
    let mut time = sample::times(100.0);
    time.p99 = 900.0;
    let uncontended = |pair: f64, rounds: [f64; 3]| Figures::Uncontended {
        acquire: time.clone(),
        release: time.clone(),
        pair: Times { p50: pair, ..time.clone() },
        rounds: rounds.to_vec(),
    };
    record.measurements = vec![
        measured(0, Workload::Uncontended, Kind::Raw, uncontended(200.0, [190.0, 200.0, 210.0])),
        measured(0, Workload::Uncontended, Kind::Ours, uncontended(224.0, [228.0, 210.0, 231.0])),
    ];
    let expected = "
Uncontended lock
One client locks and unlocks a name that nobody else wants: what a lock adds to a request in the
usual case.

            acquire  acquire  release  release    pair    pair     time of a pair
             p50 µs   p99 µs   p50 µs   p99 µs  p50 µs  p99 µs             to raw
etcd
  polylock      100      900      100      900     224     900  1.10x (1.05-1.20)
  raw           100      900      100      900     200     900  1.00x (1.00-1.00)

";
    let table = table(&record);
    assert!(table.contains(expected), "{table}");
    assert!(table.contains("made           2001-02-03T04:05:06Z\n"), "{table}");
    assert!(table.contains("etcd: 3.5.21, etcd://127.0.0.1:2379, fsync before each answer, one server\n"));
    let settings = "3 rounds of 2 s for each contender, waiting for 10 s, holding for 60 s, leases of 30 s and in the \
                    crash of 5 s, client";
    assert!(joined(&table).contains(settings), "{table}");
    assert!(!table.contains("peers"), "{table}");
}

#[test]
fn hand_overs_are_compared_with_the_best_other_lock() {
    let mut record = sample::empty();
    record.servers = sample::record().servers.split_off(2);
    let handover = |rounds: [f64; 3], overlaps| Figures::Handover {
        handovers_per_second: rounds[1],
        acquisitions_per_second: rounds[1],
        time: sample::times(100.0),
        shares: vec![10; 16],
        longest_wait_ms: 1.0,
        server_cpu_us: None,
        overlaps,
        rounds: rounds.to_vec(),
    };
    let mut add = |server, kind, name, rounds, overlaps| {
        let outcome = Outcome::Measured(handover(rounds, overlaps));
        let (workload, contender) = (Workload::HandoverBetween, contender(kind, name));
        record.measurements.push(Measurement { server, workload, contender, outcome });
    };
    add(0, Kind::Ours, "polylock", [300.0, 300.0, 330.0], 0);
    add(0, Kind::Peer, "slow", [100.0, 100.0, 100.0], 0);
    add(0, Kind::Peer, "quick", [150.0, 200.0, 200.0], 0);
    // It is quick because it is no lock.
    add(0, Kind::Peer, "broken", [900.0, 900.0, 900.0], 1);
    add(1, Kind::Ours, "polylock", [50.0, 50.0, 50.0], 0);
    add(1, Kind::Unfenced, "raw, unfenced", [100.0, 100.0, 100.0], 0);
    add(2, Kind::Ours, "polylock", [50.0, 50.0, 50.0], 0);

    let terminal = table(&record);
    let ends = |name: &str, ratio: &str| {
        let mut rows = terminal.lines().filter(|line| line.trim_start().starts_with(name));
        assert!(rows.any(|row| row.ends_with(ratio)), "{name} {ratio}\n{terminal}");
    };
    ends("polylock", " 1.65x (1.50-2.00)");
    ends("slow", " 0.50x (0.50-0.67)");
    ends("quick", " 1.00x (1.00-1.00)");
    ends("polylock", " 0.50x (0.50-0.50)");
    ends("polylock", " –");
    assert!(
        terminal.contains(" hand-over rate\n") && terminal.contains(" to the best other\n"),
        "{terminal}"
    );

    let (markdown, page) = (markdown(&record), html(&record));
    let document = parsed(&page);
    let short = "Hand-overs between processes, to the best other lock on the same server: 1.65x on etcd; 0.50x on \
                 zookeeper.";
    for report in [terminal.replace("\n  ", " "), unwrapped(&markdown), text_of(&document)] {
        assert!(report.contains(short) && report.contains("of the most hand-overs"), "{report}");
    }
    assert!(markdown.contains(" hand-over rate to the best other |"), "{markdown}");
    let ratios = elements(&document, "section").find(|it| it.attribute("id") == Some("ratios")).unwrap();
    let texts: Vec<_> = ratios.descendants().filter_map(|node| node.text()).collect();
    assert!(
        texts.iter().any(|it| it.contains("best other")) && texts.contains(&"1.65x (1.50-2.00)"),
        "{texts:?}"
    );
}

#[test]
fn every_outcome_has_its_words_in_every_report() {
    let record = sample::record();
    let page = html(&record);
    let texts = text_of(&parsed(&page));
    for report in [table(&record), markdown(&record), texts] {
        for words in [
            "failed: the session expired after 30 s",
            "failed: panicked: no node",
            "absent: etcd3gw does not wait for a lock that is held",
            "absent: more names than open files are allowed",
            "NOT EXCLUSIVE: acquired 3 times before the last holder released",
            "select 18.5/s, get 2.00/s",
            "Hand-over between processes, zookeeper: polylock failed.",
        ] {
            assert!(report.contains(words), "{words}\n{report}");
        }
    }
}

#[test]
fn a_terminal_shows_no_line_over_100_columns_and_obeys_nobody() {
    for record in [sample::record(), sample::one_backend(), sample::empty(), hostile()] {
        let table = table(&record);
        for line in table.lines() {
            assert!(line.chars().count() <= 100, "{} columns: {line}", line.chars().count());
            assert!(!line.ends_with(' '), "{line:?}");
        }
        let steering = table.chars().find(|it| (it.is_control() && *it != '\n') || *it == '\u{202e}');
        assert_eq!(steering, None);
    }
}

#[test]
fn servers_and_contenders_stand_in_the_same_order_whatever_the_record_s() {
    let record = sample::record();
    let mut reversed = record.clone();
    reversed.measurements.reverse();
    assert_eq!(table(&record), table(&reversed));
    assert_eq!(markdown(&record), markdown(&reversed));
    assert_eq!(html(&record), html(&reversed));

    let table = table(&record);
    let names: Vec<_> =
        table.lines().skip_while(|line| *line != "redis appendonly no").skip(1).take(3).map(name).collect();
    assert_eq!(names, ["polylock", "raw", "raw, unfenced"]);
}

#[test]
fn hostile_text_is_shown_as_text() {
    let page = html(&hostile());
    let document = parsed(&page);
    assert_eq!(elements(&document, "script").count() + elements(&document, "b").count(), 0);
    let texts = text_of(&document);
    assert!(texts.contains("failed: </svg><script>alert('1')</script> | `x` *b*"), "{texts}");
    assert!(texts.contains(r#"\u{1b}[31mred\u{202e}\u{0} & "quoted" next line"#), "{texts}");

    let markdown = markdown(&hostile());
    let mut texts = String::new();
    for event in events(&markdown) {
        match event {
            Event::Html(markup) | Event::InlineHtml(markup) => panic!("{markup}"),
            Event::Start(Tag::Link { .. } | Tag::Image { .. } | Tag::Strikethrough | Tag::BlockQuote(_)) => {
                panic!("{event:?} in {markdown}")
            }
            Event::Start(Tag::Heading { level, .. }) => assert!(level <= HeadingLevel::H2),
            Event::Text(text) | Event::Code(text) => texts.push_str(&text),
            _ => {}
        }
    }
    assert!(texts.contains("failed: </svg><script>alert('1')</script> | `x` *b*"), "{texts}");
}

#[test]
fn every_row_of_a_markdown_table_has_as_many_cells_as_its_head() {
    for record in [sample::record(), sample::one_backend(), sample::empty(), hostile()] {
        let markdown = markdown(&record);
        for line in markdown.lines().filter(|line| !line.starts_with('|')) {
            assert!(line.chars().count() <= 120, "{line}");
        }
        // What is too much for a row is dropped, and what is missing made up, so the source itself is counted.
        let mut head = None;
        for line in markdown.lines() {
            let cells = line.replace(r"\\", "").replace(r"\|", "").matches('|').count();
            head = line.starts_with('|').then(|| head.unwrap_or(cells));
            assert!(head.is_none_or(|head| head == cells && line.ends_with('|')), "{line}");
        }
        let tables = events(&markdown).filter(|event| matches!(event, Event::Start(Tag::Table(_)))).count();
        assert!(tables == 0 || tables > record.servers.len().min(3), "{tables} tables in {markdown}");
    }
}

#[test]
fn the_page_loads_nothing_and_runs_nothing() {
    for record in [sample::record(), hostile()] {
        let page = html(&record);
        let document = parsed(&page);
        for node in document.descendants().filter(Node::is_element) {
            let name = node.tag_name().name();
            assert!(!["script", "link", "img", "iframe", "object", "image", "use"].contains(&name), "{name}");
            for attribute in node.attributes() {
                let (key, value) = (attribute.name(), attribute.value());
                assert!(
                    !key.starts_with("on") && !["src", "srcset", "style"].contains(&key),
                    "{key}={value}"
                );
                assert!(key != "href" || value.starts_with('#'), "{key}={value}");
            }
        }
        let style = elements(&document, "style").next().and_then(|style| style.text()).unwrap();
        assert!(!style.contains("url(") && !style.contains("@import") && !style.contains("//"), "{style}");
    }
}

#[test]
fn the_page_can_be_read_by_everyone() {
    let mut waiting = sample::record();
    waiting.measurements.retain(|it| it.workload == Workload::Waiting);
    let records = [
        ("sample", sample::record()),
        ("one", sample::one_backend()),
        ("waiting", waiting),
        ("hostile", hostile()),
    ];
    for (name, record) in records {
        let page = html(&record);
        // To look at.
        let place = |ending| format!("{}/report-{name}.{ending}", env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(place("html"), &page).unwrap();
        std::fs::write(place("md"), markdown(&record)).unwrap();
        std::fs::write(place("txt"), table(&record)).unwrap();
        readable(&parsed(&page));
    }
}

fn readable(document: &Document<'_>) {
    assert_eq!(document.root_element().attribute("lang"), Some("en"));
    assert!(elements(document, "meta").any(|meta| meta.attribute("name") == Some("viewport")));

    let mut depth = 0;
    for (heading, next) in document.descendants().filter_map(|node| Some((node, heading_depth(&node)?))) {
        assert!(next <= depth + 1, "{:?} after a heading of depth {depth}", heading.text());
        depth = next;
    }

    for plot in elements(document, "svg") {
        if plot.attribute("aria-hidden") == Some("true") {
            continue;
        }
        assert_eq!(plot.attribute("role"), Some("img"));
        assert!(plot.attribute("aria-label").is_some_and(|label| !label.is_empty()));
        assert_eq!(
            (plot.attribute("width"), plot.attribute("height")),
            (None, None),
            "it scales to the page"
        );
        let described = plot.children().find(|node| node.has_tag_name("desc")).and_then(|node| node.text());
        assert!(described.is_some_and(|text| text.contains(": ")), "{described:?}");
    }

    let ids: Vec<_> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    for link in elements(document, "a").filter_map(|link| link.attribute("href")) {
        assert_eq!(ids.iter().filter(|id| **id == &link[1..]).count(), 1, "{link}");
    }
    for table in elements(document, "table") {
        let class = table.parent().and_then(|parent| parent.attribute("class"));
        assert_eq!(class, Some("scroll"), "a wide table scrolls in its own box");
    }
}

#[test]
fn every_plot_has_a_legend_and_a_table_in_its_section() {
    let page = html(&sample::record());
    let document = parsed(&page);
    let mut plotted = 0;
    for section in elements(&document, "section") {
        let has = |name: &'static str| section.descendants().filter(move |node| node.has_tag_name(name));
        if has("figure").count() > 0 {
            plotted += 1;
            assert!(has("ul").any(|list| list.attribute("class") == Some("legend") && list.has_children()));
            assert!(
                has("details").any(|details| details.descendants().any(|node| node.has_tag_name("table")))
            );
        }
    }
    assert_eq!(plotted, 9, "eight workloads, and the ratios");
}

#[test]
fn every_colour_of_a_plot_has_one_for_a_dark_screen() {
    let page = html(&sample::record());
    let document = parsed(&page);
    let style = elements(&document, "style").next().and_then(|style| style.text()).unwrap();
    let mut painted = 0;
    for node in elements(&document, "svg").flat_map(|svg| svg.descendants()) {
        for paint in ["fill", "stroke"] {
            if let Some(color) = node.attribute(paint).filter(|color| *color != "none") {
                painted += 1;
                assert!(style.contains(&format!("svg [{paint}=\"{color}\"]")), "{paint} {color}");
            }
        }
    }
    assert!(painted > 1000, "{painted}");
}

#[test]
fn an_empty_record_says_that_nothing_was_measured() {
    let record = sample::empty();
    for report in [table(&record), markdown(&record), html(&record)] {
        assert!(report.contains("Nothing was measured."), "{report}");
        for word in ["In short", "NaN", "inf", "<svg"] {
            assert!(!report.contains(word), "{word}: {report}");
        }
    }
    parsed(&html(&record));
}

#[test]
fn one_backend_is_not_compared_with_itself() {
    let record = sample::one_backend();
    for report in [table(&record), markdown(&record), html(&record)] {
        for word in ["quickest", "slowest", "fastest", "fewest", "most on", "overlap", "redis", "Wrong"] {
            assert!(!report.contains(word), "{word}: {report}");
        }
    }
    let markdown = markdown(&record);
    assert!(
        markdown.contains("- An uncontended lock, acquired and released: 1.57 ms on etcd.\n"),
        "{markdown}"
    );
}

#[test]
fn nothing_is_said_about_what_was_not_measured() {
    let mut record = sample::record();
    record.measurements.retain(|measurement| measurement.workload == Workload::Waiting);
    let markdown = markdown(&record);
    let joined = unwrapped(&markdown);
    let summary: Vec<_> = joined.lines().skip_while(|line| *line != "## In short").take(5).collect();
    let sentence = "- Commands a second that 100 waiters cost the server: 0 on redis appendonly no, redis appendonly \
                    yes, appendfsync always, etcd and zookeeper; 20.5 on mysql.";
    assert_eq!(summary[2], sentence);
    assert_eq!(summary[4], "| polylock on | commands a second for 100 waiters |", "{summary:?}");
    for report in [table(&record), markdown, html(&record)] {
        for word in ["Uncontended lock", "An uncontended", "Many locks", "Hand-over", "Crash of", "NaN"] {
            assert!(!report.contains(word), "{word}: {report}");
        }
    }
}

#[test]
fn a_take_over_is_told_from_where_its_promise_counts() {
    let mut record = sample::record();
    record.measurements.retain(|it| it.workload == Workload::Crash && it.contender.kind == Kind::Ours);
    let (page, markdown, terminal) = (html(&record), markdown(&record), table(&record));
    for report in [terminal.replace("\n  ", " "), unwrapped(&markdown), text_of(&parsed(&page))] {
        let short =
            "The lock of a killed holder passes on (median): 8.10 ms after the lease on redis appendonly no;";
        assert!(report.contains(short), "{report}");
        assert!(report.contains("; 3.00 ms after the kill on file."), "{report}");
        assert!(report.contains("100 from kill") && !report.contains("110 from kill"), "{report}");
    }
}

#[test]
fn the_waiting_table_says_how_commands_are_counted() {
    let mut record = sample::record();
    record.measurements.retain(|it| it.workload == Workload::Waiting);
    let (page, markdown, terminal) = (html(&record), markdown(&record), table(&record));
    for report in [terminal, markdown, text_of(&parsed(&page))] {
        let report = joined(&report);
        for words in ["what scripts call", "(Questions)", "may count some twice", "gRPC messages", "packets"]
        {
            assert!(report.contains(words), "{words}\n{report}");
        }
    }
}

#[test]
fn backends_whose_rounds_overlap_are_not_ranked() {
    let mut record = sample::record();
    let rate = |rate: f64, rounds: [f64; 2]| Figures::Throughput {
        pairs_per_second: rate,
        cpu_us_per_pair: 9.0,
        rounds: rounds.to_vec(),
    };
    record.measurements = vec![
        measured(2, Workload::Throughput, Kind::Ours, rate(1000.0, [950.0, 1050.0])),
        measured(3, Workload::Throughput, Kind::Ours, rate(980.0, [930.0, 1030.0])),
    ];
    let level = "a second: no different on etcd (1,000/s) and zookeeper (980/s): their rounds overlap.";
    assert!(unwrapped(&markdown(&record)).contains(level), "{}", markdown(&record));

    record.measurements.push(measured(4, Workload::Throughput, Kind::Ours, rate(400.0, [390.0, 410.0])));
    let first =
        "most on etcd (1,000/s) and zookeeper (980/s), whose rounds overlap, fewest on mysql (400/s).";
    assert!(unwrapped(&markdown(&record)).contains(first), "{}", markdown(&record));

    record.measurements.remove(1);
    let only = "most on etcd (1,000/s), fewest on mysql (400/s).";
    assert!(unwrapped(&markdown(&record)).contains(only), "{}", markdown(&record));

    record.measurements.push(measured(3, Workload::Throughput, Kind::Ours, rate(405.0, [395.0, 415.0])));
    let last = "most on etcd (1,000/s), fewest on zookeeper (405/s) and mysql (400/s).";
    assert!(unwrapped(&markdown(&record)).contains(last), "{}", markdown(&record));
}

#[test]
fn what_must_not_be_stands_first() {
    for (since, late) in [(Since::Lease, 1), (Since::Kill, 3)] {
        what_must_not_be_stands_first_in(since, late);
    }
}

fn what_must_not_be_stands_first_in(since: Since, late: usize) {
    let mut record = sample::one_backend();
    for measurement in &mut record.measurements {
        let ours = measurement.contender.kind == Kind::Ours;
        let Outcome::Measured(figures) = &mut measurement.outcome else { continue };
        match figures {
            Figures::Handover { overlaps, .. }
                if ours && measurement.workload == Workload::HandoverWithin =>
            {
                *overlaps = 1;
            }
            Figures::Handover { overlaps, .. } if !ours => *overlaps = 7,
            Figures::Holding { lost, locks, .. } if *locks == 10_000 => *lost = 12,
            Figures::Crash { takeovers, allowed_ms, allowed_since } => {
                takeovers[0].took_ms = takeovers[0].lease_left_ms + *allowed_ms + 1.0;
                // Two more are late if a killed holder's lock is to be free at once.
                for takeover in takeovers.iter_mut().skip(1) {
                    takeover.took_ms = 1.0;
                }
                takeovers[1].took_ms = *allowed_ms + 1.0;
                takeovers[2].took_ms = *allowed_ms + 2.0;
                if since == Since::Kill {
                    *allowed_since = since;
                }
            }
            _ => {}
        }
    }
    let page = html(&record);
    let document = parsed(&page);
    let alarms: Vec<_> = elements(&document, "li")
        .filter(|item| item.attribute("class") == Some("alarm"))
        .filter_map(|item| item.text())
        .collect();
    assert_eq!(
        alarms,
        [
            "Hand-over within a process, etcd: acquired 1 time before the last holder released.",
            "Holding 10,000 locks, etcd: lost 12 of 10,000 locks.",
            &format!("Crash of the holder, etcd: {late} of 5 take-overs later than promised."),
        ]
    );
}

#[test]
fn figures_that_make_no_sense_break_nothing() {
    let mut record = sample::record();
    let none = Times { points: Vec::new(), ..sample::times(0.0) };
    let mut odd = none.clone();
    odd.points = vec![(f64::NAN, 1.0), (101.0, -5.0), (50.0, f64::INFINITY)];
    record.measurements = vec![
        measured(
            0,
            Workload::Uncontended,
            Kind::Ours,
            Figures::Uncontended {
                acquire: none.clone(),
                release: odd,
                pair: none.clone(),
                rounds: vec![f64::NAN, 0.0],
            },
        ),
        measured(
            0,
            Workload::Uncontended,
            Kind::Raw,
            Figures::Uncontended {
                acquire: none.clone(),
                release: none.clone(),
                pair: none.clone(),
                rounds: vec![0.0],
            },
        ),
        measured(
            77,
            Workload::Throughput,
            Kind::Ours,
            Figures::Crash { takeovers: Vec::new(), allowed_ms: 0.0, allowed_since: Since::Lease },
        ),
        measured(
            77,
            Workload::HandoverWithin,
            Kind::Ours,
            Figures::Handover {
                handovers_per_second: f64::INFINITY,
                acquisitions_per_second: -1.0,
                time: none,
                shares: vec![0; 16],
                longest_wait_ms: f64::NAN,
                server_cpu_us: Some(f64::NAN),
                overlaps: u64::MAX,
                rounds: Vec::new(),
            },
        ),
        measured(
            0,
            Workload::Waiting,
            Kind::Ours,
            Figures::Waiting {
                commands_per_second: None,
                by_kind: BTreeMap::from([(sample::HOSTILE.to_owned(), f64::NAN)]),
                server_cpu_percent: None,
                client_cpu_percent: f64::MAX,
            },
        ),
        measured(
            0,
            Workload::Crash,
            Kind::Ours,
            Figures::Crash {
                takeovers: vec![Takeover { lease_left_ms: f64::NAN, took_ms: 1.0 }],
                allowed_ms: f64::NAN,
                allowed_since: Since::Kill,
            },
        ),
    ];
    let page = html(&record);
    let texts = text_of(&parsed(&page));
    for report in [table(&record), markdown(&record), texts] {
        assert!(report.contains("its figures are of another workload"), "{report}");
        assert!(report.contains("server 78 (not described)"), "{report}");
        assert!(!report.contains("NaN") && !report.contains("infinity"), "{report}");
    }
}

fn measured(server: usize, workload: Workload, kind: Kind, figures: Figures) -> Measurement {
    let name = if kind == Kind::Ours { "polylock" } else { "raw" };
    Measurement { server, workload, contender: contender(kind, name), outcome: Outcome::Measured(figures) }
}

/// The sample with hostile text wherever there is text.
fn hostile() -> Record {
    let mut record = sample::record();
    let texts = [&mut record.made, &mut record.machine.cpu, &mut record.machine.system];
    texts.into_iter().for_each(|text| sample::HOSTILE.clone_into(text));
    record.commit = Some(sample::HOSTILE.to_owned());
    for server in &mut record.servers {
        let texts = [
            &mut server.backend,
            &mut server.url,
            &mut server.version,
            &mut server.durability,
            &mut server.topology,
        ];
        texts.into_iter().for_each(|text| sample::HOSTILE.clone_into(text));
    }
    for measurement in &mut record.measurements {
        let peer = &mut measurement.contender;
        if peer.kind == Kind::Peer {
            let texts = [&mut peer.name, &mut peer.language, &mut peer.version];
            texts.into_iter().for_each(|text| sample::HOSTILE.clone_into(text));
        }
    }
    record
}

/// Held to be well-formed XML, which HTML need not be, because then any reader agrees on what is what.
fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}"))
}

fn events(markdown: &str) -> Parser<'_> {
    Parser::new_ext(markdown, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH)
}

fn elements<'a, 'page>(
    document: &'a Document<'page>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'page>> {
    document.descendants().filter(move |node| node.is_element() && node.tag_name().name() == name)
}

fn text_of(document: &Document<'_>) -> String {
    document.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect::<Vec<_>>().join("\n")
}

fn heading_depth(node: &Node<'_, '_>) -> Option<usize> {
    ["h1", "h2", "h3"].iter().position(|name| node.has_tag_name(*name)).map(|at| at + 1)
}

/// A row's first cell in a terminal's table.
fn name(line: &str) -> &str {
    line.trim().split("  ").next().unwrap_or_default()
}

/// With single spaces only.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn unwrapped(markdown: &str) -> String {
    markdown.replace("\n  ", " ")
}
