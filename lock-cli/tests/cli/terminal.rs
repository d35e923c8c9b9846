//! Interactive commands, at a terminal and under a shell with job control.

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::AsFd,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags},
    io::dup,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
};

use crate::support::{Place, Process, until};

#[test]
fn a_command_reads_the_terminal_and_the_shell_has_it_back_afterwards() {
    let mut shell = Shell::start();
    shell.types("polylock run n -- sh -c 'echo run''ning; cat'\n");
    // What is typed before is not echoed.
    shell.shows("running\r\n");
    shell.types("first line\n");
    // Once as the terminal's echo, once as cat's.
    shell.shows("first line\r\nfirst line\r\n");
    shell.types("\x04");
    shell.types("echo code:$?\n");
    shell.shows("code:0");
}

#[test]
fn a_command_at_a_terminal_is_in_its_foreground_from_the_start() {
    let mut shell = Shell::start();
    let script = "read pid name state parent group session line foreground rest < /proc/self/stat; \
                  [ $group = $foreground ] && echo in fro''nt || echo be''hind";
    shell.types(&format!("polylock run n -- sh -c '{script}'; echo code:$?\n"));
    shell.shows("code:0");
    assert!(shell.screen().contains("in front\r\n"), "{}", shell.screen());
}

#[test]
fn control_c_ends_command_and_leaves_the_shell() {
    let mut shell = Shell::start();
    // Without `exec`, sh is now and then just starting the child, and takes its end for a plain one.
    shell.types("polylock run n -- sh -c 'echo run''ning; exec sleep 30'\n");
    shell.shows("running\r\n");
    shell.types("\x03");
    // What is typed before may be thrown away with the signal.
    shell.prompts();
    shell.types("echo code:$?\n");
    shell.shows("code:130");
}

#[test]
fn control_z_stops_the_job_and_fg_continues_it_under_the_lock() {
    let mut shell = Shell::start();
    shell.types("polylock run n -- sh -c 'echo run''ning; cat'\n");
    // What is typed before is not echoed.
    shell.shows("running\r\n");
    shell.types("one\n");
    shell.shows("one\r\none\r\n");
    shell.types("\x1a");
    shell.shows("Stopped");
    // What is typed before may be thrown away with the signal.
    shell.prompts();
    shell.types("polylock run n --no-wait -- true; echo code:$?\n");
    shell.shows("code:75");
    shell.types("fg\n");
    shell.types("two\n");
    shell.shows("two\r\n");
    shell.types("\x04");
    shell.types("echo last:$?\n");
    shell.shows("last:0");
}

#[test]
fn a_job_that_was_stopped_for_longer_than_its_lease_is_killed_when_it_is_continued() {
    let mut shell = Shell::start();
    shell.types(
        "polylock run n --ttl 3s -- sh -c 'trap \"echo got TERM\" TERM; echo run''ning; cat; echo went on'\n",
    );
    shell.shows("running\r\n");
    shell.types("one\n");
    // cat runs: a shell that is just starting it cannot be stopped.
    shell.shows("one\r\none\r\n");
    shell.types("\x1a");
    shell.shows("Stopped");
    // What is typed before may be thrown away with the signal.
    shell.prompts();
    shell.types("polylock run n -- echo an''other\n");
    shell.shows("another");
    shell.types("fg\n");
    shell.shows("was lost");
    shell.types("echo code:$?\n");
    shell.shows("code:79");
    assert!(
        !shell.screen().contains("\r\nwent on") && !shell.screen().contains("\r\ngot TERM"),
        "{}",
        shell.screen()
    );
}

#[test]
fn a_background_job_that_wants_the_terminal_is_stopped_and_gets_it_with_fg() {
    let mut shell = Shell::start();
    shell.types("polylock run n -- cat &\n");
    shell.types("\n");
    until("the job is stopped", || {
        shell.types("jobs\n");
        thread::sleep(Duration::from_millis(50));
        shell.screen().contains("Stopped")
    });
    shell.types("fg\n");
    shell.types("now\n");
    shell.shows("now\r\n");
    shell.types("\x04");
    shell.types("echo code:$?\n");
    shell.shows("code:0");
}

#[test]
fn the_rest_of_a_pipeline_keeps_the_terminal() {
    let mut shell = Shell::start();
    // The reader after the pipe asks the user, as a pager does.
    shell.types("polylock run n -- echo data | (read data; read answer < /dev/tty; echo $data+$answer)\n");
    shell.types("yes\n");
    shell.shows("data+yes");
    // A command in a pipeline gets it when it asks for it.
    shell.types("polylock run n -- sh -c 'read answer < /dev/tty; echo [$answer]' | cat\n");
    shell.types("mine\n");
    shell.shows("[mine]");
    shell.types("echo code:$?\n");
    shell.shows("code:0");
}

#[test]
fn a_spinner_shows_that_a_run_waits_and_goes_away() {
    let mut shell = Shell::start();
    shell.types("polylock run n -- sh -c 'echo run''ning; while ! [ -e enough ]; do sleep 0.01; done' &\n");
    shell.shows("running\r\n");
    shell.types("export TERM=xterm; polylock run n -- echo fol''lowed\n");
    shell.shows("waiting for \"n\"");
    std::fs::write(shell.place.path("enough"), "").unwrap();
    // The line is cleared before COMMAND writes.
    shell.shows("\x1b[2Kfollowed\r\n");
}

#[test]
fn a_closed_terminal_hangs_command_up() {
    let mut shell = Shell::start();
    shell.types("polylock run n -- sh -c 'echo $$ > pid; echo run''ning; sleep 30'\n");
    shell.shows("running\r\n");
    let command = crate::support::pid_in(&shell.place.path("pid"));
    let place = std::mem::replace(&mut shell.place, Place::new());
    drop(shell);
    until("COMMAND is gone", || !crate::support::runs(command));
    assert!(place.run(&["n", "--", "true"]).status().unwrap().success());
}

/// bash at a terminal of its own.
struct Shell {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    place: Place,
    _process: Process,
}

impl Shell {
    fn start() -> Self {
        let place = Place::new();
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let path = ptsname(&terminal, Vec::new()).unwrap();
        let line = rustix::fs::open(path, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let line = || dup(line.as_fd()).unwrap();

        let mut bash = Command::new("setsid");
        bash.args(["--ctty", "bash", "--norc", "--noprofile", "-i"]);
        bash.env("PS1", "$ ").env("TERM", "dumb").env("POLYLOCK_URL", place.url());
        let folder = std::path::Path::new(env!("CARGO_BIN_EXE_polylock")).parent().unwrap();
        let path = std::env::var("PATH").unwrap();
        bash.env("PATH", format!("{}:{path}", folder.display())).current_dir(place.path(""));
        let process = Process::at(bash.stdin(line()).stdout(line()).stderr(line()));

        let mut output = File::from(dup(&terminal).unwrap());
        let screen = Arc::<Mutex<String>>::default();
        let shown = screen.clone();
        thread::spawn(move || {
            let mut piece = [0; 1024];
            // An error when the last process at the terminal is gone.
            while let Ok(length @ 1..) = output.read(&mut piece) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..length]));
            }
        });
        let mut shell = Self { keyboard: terminal.into(), screen, place, _process: process };
        shell.shows("$ ");
        shell
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Waits until the text is shown.
    fn shows(&mut self, what: &str) {
        self.waits_for(what, |screen| screen.contains(what));
    }

    /// Waits until bash asks for the next command.
    fn prompts(&mut self) {
        self.waits_for("a prompt", |screen| screen.ends_with("$ "));
    }

    fn waits_for(&mut self, what: &str, shown: impl Fn(&str) -> bool) {
        let start = std::time::Instant::now();
        while !shown(&self.screen()) {
            assert!(
                start.elapsed() < crate::support::PATIENCE,
                "{what:?} is not shown in\n{}",
                self.screen()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}
