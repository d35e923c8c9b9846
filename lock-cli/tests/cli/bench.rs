//! `polylock bench`, and what is said where it is not built.

use crate::support::{code, polylock, text};

#[cfg(not(feature = "bench"))]
#[test]
fn a_build_without_the_benchmark_says_how_to_get_it() {
    for arguments in [&["bench"][..], &["bench", "memory:", "--quick"]] {
        let output = polylock().args(arguments).output().unwrap();
        assert_eq!((code(&output), text(&output.stdout)), (2, ""));
        let said = text(&output.stderr);
        assert!(said.contains("cargo install lock-cli --features bench"), "{said}");
    }
    let help = polylock().args(["bench", "--help"]).output().unwrap();
    assert!(help.status.success() && text(&help.stdout).contains("--features bench"), "{help:?}");
}

#[cfg(feature = "bench")]
mod built {
    use std::fs;

    use rustix::process::Signal;
    use serde_json::Value;

    use super::{code, polylock, text};
    use crate::support::{Place, Process, Redis, until};

    const SHORT: [&str; 4] = ["--rounds", "2", "--seconds", "0.05"];

    #[test]
    fn what_cannot_be_measured_is_refused_before_anything_is() {
        let place = Place::new();
        fs::write(place.path("url"), "redis://:s3cr3t@h x").unwrap();
        let file = place.path("url").display().to_string();
        let bad: [&[&str]; 9] = [
            &[],
            &["memory:", "--only", "everything"],
            &["memory:", "--only", "crash", "--skip", "crash"],
            &["memory:", "--rounds", "0"],
            &["memory:", "--seconds", "NaN"],
            &["memory:", "--json", "/nonexistent/folder/x"],
            &["memory:", "--url-file", "/nonexistent/file"],
            &["memory:", "--url-file", &file],
            &["memory:", "carrier-pigeon://me:s3cr3t@coop"],
        ];
        for arguments in bad {
            let output = polylock().arg("bench").args(arguments).output().unwrap();
            assert_eq!((code(&output), text(&output.stdout)), (2, ""), "{arguments:?}");
            let said = text(&output.stderr);
            assert!(!said.is_empty() && !said.contains("s3cr3t"), "{said}");
        }
    }

    #[test]
    fn a_run_prints_a_table_and_writes_a_record_and_a_page() {
        let (place, redis) = (Place::new(), Redis::start_with(Some("s3cr3t")));
        let url = redis.url().replace("redis://", "redis://:s3cr3t@");
        fs::write(place.path("url"), format!("{url}\n")).unwrap();
        let mut bench = polylock();
        bench.arg("bench").args(SHORT).args(["memory:", "--only", "uncontended,throughput,hand-over"]);
        bench.arg("--url-file").arg(place.path("url"));
        bench.arg("--json").arg(place.path("record")).arg("--html").arg(place.path("page"));
        let output = bench.output().unwrap();
        // Nothing failed, and without a terminal there is no bar.
        assert_eq!((code(&output), text(&output.stderr)), (0, ""));
        let (record, page) = (place.read("record"), place.read("page"));
        let shown = text(&output.stdout);
        assert!(shown.contains("polylock") && shown.contains("raw, unfenced"), "{shown}");
        assert!(page.contains("<svg"), "no diagram");
        for written in [shown, &record, &page] {
            assert!(!written.contains("s3cr3t"), "{written}");
        }
        let record: Value = serde_json::from_str(&record).unwrap();
        assert_eq!(record["servers"][0]["backend"], "memory");
        assert_eq!(record["servers"][1]["backend"], "redis");
        assert_eq!(redis.ask("DBSIZE").lines().nth(1), Some(":0"), "keys are left");
    }

    #[test]
    fn the_record_is_what_standard_output_gets_if_asked_for() {
        let mut bench = polylock();
        bench.arg("bench").args(SHORT).args(["memory:", "--only", "throughput", "--json", "-"]);
        let output = bench.output().unwrap();
        assert_eq!(code(&output), 0, "{output:?}");
        let record: lock_bench::record::Record = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(record.measurements.len(), 1);
        let again: Value = serde_json::to_value(&record).unwrap();
        assert_eq!(again, serde_json::from_slice::<Value>(&output.stdout).unwrap());
    }

    #[test]
    fn a_server_that_is_down_fails_and_the_others_are_measured() {
        let mut bench = polylock();
        bench.arg("bench").args(SHORT).args(["redis://me:s3cr3t@127.0.0.1:1", "memory:"]);
        let output = bench.args(["--only", "throughput", "--json", "-"]).output().unwrap();
        assert_eq!(code(&output), 1);
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(record["measurements"][0]["outcome"]["failed"].is_string(), "{record}");
        assert!(record["measurements"][1]["outcome"]["measured"].is_object(), "{record}");
        let said = text(&output.stderr);
        assert!(said.contains("127.0.0.1:1") && !said.contains("s3cr3t"), "{said}");
    }

    #[test]
    fn interrupted_it_prints_what_was_measured() {
        let (place, redis) = (Place::new(), Redis::start());
        let mut slow = polylock();
        slow.args(["bench", "memory:", &redis.url(), "--only", "throughput,crash", "--rounds", "30"]);
        slow.args(["--seconds", "0.05"]).arg("--json").arg(place.path("record"));
        let mut process = Process::start(&mut slow);
        until("redis is being measured", || redis.ask("DBSIZE").lines().next() != Some(":0"));
        process.signal(Signal::INT);
        assert_eq!(process.code(), Some(130), "{}", process.errors());
        let record: Value = serde_json::from_str(&place.read("record")).unwrap();
        assert!(record["measurements"][0]["outcome"]["measured"].is_object(), "{record}");
        assert_eq!(redis.ask("DBSIZE").lines().next(), Some(":0"), "keys are left");
    }
}
