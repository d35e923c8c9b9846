use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use lock_bench::{record::Record, report};

use super::Bench;
use crate::exit::{self, Failure};

/// Where the results go.
pub(super) struct Outputs {
    json: Option<(PathBuf, File)>,
    html: Option<(PathBuf, File)>,
    json_to_stdout: bool,
}

impl Outputs {
    /// Makes the files.
    pub(super) fn open(args: &Bench) -> Result<Self, Failure> {
        let json_to_stdout = args.json.as_deref() == Some(Path::new("-"));
        let json = args.json.clone().filter(|_| !json_to_stdout);
        Ok(Self { json: made(json)?, html: made(args.html.clone())?, json_to_stdout })
    }

    pub(super) fn write(self, record: &Record) -> Result<(), Failure> {
        let failed = |what: &str, error: io::Error| {
            Failure::new(exit::BENCH_FAILURE, format!("{what} cannot be written: {error}"))
        };
        let json =
            serde_json::to_string_pretty(record).map_err(|error| failed("the record", error.into()))?;
        let shown = if self.json_to_stdout { format!("{json}\n") } else { report::table(record) };
        let mut out = io::stdout().lock();
        match out.write_all(shown.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(failed("stdout", error)),
            _ => {}
        }
        for (target, text) in [(self.json, json), (self.html, report::html(record))] {
            if let Some((path, mut file)) = target {
                file.write_all(text.as_bytes())
                    .map_err(|error| failed(&path.display().to_string(), error))?;
            }
        }
        Ok(())
    }
}

fn made(path: Option<PathBuf>) -> Result<Option<(PathBuf, File)>, Failure> {
    let Some(path) = path else { return Ok(None) };
    match File::create(&path) {
        Ok(file) => Ok(Some((path, file))),
        Err(error) => {
            Err(Failure::new(exit::BENCH_USAGE, format!("{} cannot be made: {error}", path.display())))
        }
    }
}
