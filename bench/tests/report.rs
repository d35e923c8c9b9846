//! The reports of a record.

mod sample;

#[test]
fn look() {
    std::fs::write("/tmp/report.txt", lock_bench::report::table(&sample::record())).unwrap();
    std::fs::write("/tmp/report.md", lock_bench::report::markdown(&sample::record())).unwrap();
    std::fs::write("/tmp/report.html", lock_bench::report::html(&sample::record())).unwrap();
}
