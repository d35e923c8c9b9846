//! Records that nobody has looked at.

use std::collections::BTreeMap;

use lock_bench::{
    record::{Figures, Kind, Since, Takeover, Times, Workload},
    report::{html, markdown, table},
};
use pulldown_cmark::{Event, HeadingLevel, Tag};

use crate::{elements, events, hostile, measured, parsed, sample, text_of};

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
