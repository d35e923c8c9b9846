//! One command at a time, with its time, until the first that fails.

use std::{error::Error, process::Command, time::Instant};

use crate::workspace;

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// `cargo` with these arguments, in the workspace's root.
pub(crate) fn cargo(arguments: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments.split_whitespace()).current_dir(workspace::root());
    command
}

/// Runs a step; what it prints passes through.
pub(crate) fn run(title: &str, command: &mut Command) -> Result {
    run_as(title, &shown(command), command)
}

/// Runs a step that is shown as something shorter than its command.
pub(crate) fn run_as(title: &str, shown: &str, command: &mut Command) -> Result {
    eprintln!("\n=== {title}\n    {shown}");
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("{shown}: {e}"))?;
    let seconds = start.elapsed().as_secs_f32();
    if status.success() {
        eprintln!("=== {title}: ok, {seconds:.1} s");
        Ok(())
    } else {
        Err(format!("{title} failed after {seconds:.1} s ({status}). Alone it is:\n    {shown}").into())
    }
}

/// Whether the command can be started and says yes.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(key, value)| {
        Some(format!("{}={}", key.to_string_lossy(), quoted(&value?.to_string_lossy())))
    });
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    let arguments = command.get_args().map(|argument| quoted(&argument.to_string_lossy()));
    variables.chain([program]).chain(arguments).collect::<Vec<_>>().join(" ")
}

fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@+%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_shows_the_command_to_repeat() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]).env("RUSTDOCFLAGS", "-D warnings");
        let text = run("three", &mut command).unwrap_err().to_string();
        assert!(text.starts_with("three failed") && text.contains("exit status: 3"), "{text}");
        assert!(text.ends_with("RUSTDOCFLAGS='-D warnings' sh -c 'exit 3'"), "{text}");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert!(run("none", &mut Command::new("/nonexistent/program")).is_err());
    }
}
