//! What stands in the tables, on a terminal and in Markdown.

use lock_bench::{
    record::{Figures, Kind, Measurement, Outcome, Times, Workload},
    report::{html, markdown, table},
};
use pulldown_cmark::{Event, Tag};

use crate::{
    elements, events, hostile, joined, measured, name, parsed,
    sample::{self, contender},
    text_of, unwrapped,
};

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
