use crate::record::{Figures, Kind, Measurement, Outcome, Record, Since};

/// What must not be in a record: failures, and promises that were not kept. A sentence each; a failure that
/// several workloads share is told once.
#[must_use]
pub fn broken(record: &Record) -> Vec<String> {
    let mut all = Vec::new();
    for measurement in &record.measurements {
        let server = &record.servers[measurement.server];
        let (who, what) = (&measurement.contender.name, measurement.workload.title());
        let told = match &measurement.outcome {
            Outcome::Failed(why) => Some(format!("{} ({}), {who}: {why}", server.backend, server.url)),
            Outcome::Measured(figures) => unkept(figures, measurement)
                .map(|unkept| format!("{} ({}), {what}, {who}: {unkept}", server.backend, server.url)),
            Outcome::Absent(_) => None,
        };
        if let Some(told) = told.filter(|told| !all.contains(told)) {
            all.push(told);
        }
    }
    all
}

fn unkept(figures: &Figures, measurement: &Measurement) -> Option<String> {
    match figures {
        Figures::Handover { overlaps: overlaps @ 1.., .. } => {
            Some(format!("two held the lock at once, {overlaps} times"))
        }
        Figures::Holding { locks, lost: lost @ 1.., worst_lateness_ms, .. } => Some(format!(
            "{lost} of {locks} locks were lost: renewals were late by up to {worst_lateness_ms:.0} ms"
        )),
        Figures::Crash { takeovers, allowed_ms, allowed_since }
            if measurement.contender.kind == Kind::Ours =>
        {
            let after = takeovers.iter().map(|takeover| takeover.after_ms(*allowed_since));
            let worst = after.fold(f64::MIN, f64::max);
            let from = match allowed_since {
                Since::Kill => "the kill",
                Since::Lease => "the end of the lease",
            };
            (worst > *allowed_ms).then(|| {
                format!("a take-over came {worst:.0} ms after {from}; {allowed_ms:.0} ms are allowed")
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Contender, Machine, Server, Settings, Takeover, Workload};

    fn record(outcomes: Vec<(Workload, Outcome)>) -> Record {
        let text = String::new;
        let contender =
            Contender { name: "polylock".into(), kind: Kind::Ours, language: text(), version: text() };
        let measurement =
            |(workload, outcome)| Measurement { server: 0, workload, contender: contender.clone(), outcome };
        Record {
            made: text(),
            commit: None,
            machine: Machine { cpus: 1, cpu: text(), memory_bytes: 1, system: text() },
            settings: Settings {
                rounds: 1,
                seconds: 1.0,
                pinned: true,
                waiting: 1.0,
                holding: 1.0,
                ttl: 1.0,
                crash_ttl: 1.0,
            },
            servers: vec![Server {
                backend: "redis".into(),
                url: "redis://h".into(),
                version: text(),
                durability: text(),
                topology: text(),
            }],
            measurements: outcomes.into_iter().map(measurement).collect(),
        }
    }

    #[test]
    fn what_must_not_be_is_told_and_the_rest_is_not() {
        let crash = |took_ms, allowed_since| {
            let takeovers = vec![Takeover { lease_left_ms: 1000.0, took_ms }];
            Outcome::Measured(Figures::Crash { takeovers, allowed_ms: 110.0, allowed_since })
        };
        let holding = |lost| {
            Outcome::Measured(Figures::Holding {
                locks: 1000,
                commands_per_second: None,
                server_cpu_percent: None,
                client_cpu_percent: 1.0,
                bytes_per_lock: 1.0,
                worst_lateness_ms: 0.0,
                lost,
            })
        };
        let failed = || Outcome::Failed("gone".into());
        let good = record(vec![
            (Workload::Crash, crash(1109.0, Since::Lease)),
            (Workload::Crash, crash(109.0, Since::Kill)),
            (Workload::Holding, holding(0)),
        ]);
        assert_eq!(broken(&good), Vec::<String>::new());
        let bad = record(vec![
            (Workload::Crash, crash(1111.0, Since::Lease)),
            // Long before the end of the lease, but not at once.
            (Workload::Crash, crash(111.0, Since::Kill)),
            (Workload::Holding, holding(2)),
            (Workload::Waiting, failed()),
            (Workload::Throughput, failed()),
        ]);
        let told = broken(&bad);
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(told[0].contains("111 ms after the end of the lease; 110 ms"), "{told:?}");
        assert!(told[1].contains("111 ms after the kill; 110 ms"), "{told:?}");
        assert!(told[2].contains("2 of 1000"), "{told:?}");
        assert_eq!(told[3], "redis (redis://h), polylock: gone");
    }
}
