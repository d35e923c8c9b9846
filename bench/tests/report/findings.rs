//! What is said in words, and what is not said.

use lock_bench::{
    record::{Figures, Kind, Outcome, Since, Workload},
    report::{html, markdown, table},
};

use crate::{elements, measured, parsed, sample, unwrapped};

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
