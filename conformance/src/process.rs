use std::{
    env, fs, io,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitCode},
    sync::{
        LazyLock,
        mpsc::{Sender, SyncSender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal};

/// Says what a re-executed test binary has to be.
pub(crate) const ROLE: &str = "POLYLOCK_CONFORMANCE_ROLE";
const SHIM: &str = "shim";
pub(crate) const PARENT: &str = "POLYLOCK_CONFORMANCE_PARENT";

/// A command that runs `program` in a process group of its own and does not outlive this process.
///
/// It re-executes this binary, which asks the kernel for the death signal and then becomes `program`.
pub(crate) fn guarded(program: &str) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.env(ROLE, SHIM).env(PARENT, std::process::id().to_string()).arg(program).process_group(0);
    Ok(command)
}

/// What the re-executed binary does for [`guarded`]: becomes the program. Returns only if it cannot.
pub(crate) fn become_guarded() -> Option<ExitCode> {
    if env::var(ROLE).ok()? != SHIM {
        return None;
    }
    die_with_parent();
    let mut arguments = env::args_os().skip(1);
    let program = arguments.next()?;
    let error = Command::new(&program).args(arguments).env_remove(ROLE).env_remove(PARENT).exec();
    eprintln!("{} cannot be started: {error}", program.display());
    Some(ExitCode::from(127))
}

/// Ends this process when the one that started it ends.
pub(crate) fn die_with_parent() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("no death signal: {error}");
    }
    // It may have ended before the kernel was asked.
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if env::var(PARENT).ok().is_some_and(|expected| Some(expected) != parent) {
        std::process::exit(1);
    }
}

/// Starts a child from a thread that lives as long as this process.
///
/// The kernel sends the death signal when the *thread* that made the child ends, and cases run on
/// threads that end with them.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let (reply, started) = sync_channel(1);
    let gone = || io::Error::other("the thread that starts children is gone");
    SPAWNER.send((command, reply)).map_err(|_| gone())?;
    started.recv().map_err(|_| gone())?
}

type Order = (Command, SyncSender<io::Result<Child>>);

static SPAWNER: LazyLock<Sender<Order>> = LazyLock::new(|| {
    let (orders, inbox) = channel::<Order>();
    thread::spawn(move || {
        for (mut command, reply) in inbox {
            // Whoever asked may have been stopped meanwhile: then nobody wants the child.
            if let Err(unwanted) = reply.send(command.spawn())
                && let Ok(mut child) = unwanted.0
            {
                let _ = child.kill();
            }
        }
    });
    orders
});

/// Signals every process of a child's group; when this returns, one that was to stop has stopped.
pub(crate) fn signal(child: &Child, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the child's process id is out of range"))?;
    rustix::process::kill_process_group(pid, signal)?;
    if signal == Signal::STOP {
        wait_until_stopped(child);
    }
    Ok(())
}

/// Until none of its threads runs: the signal's sender does not wait for them.
pub(crate) fn wait_until_stopped(child: &Child) {
    let threads = format!("/proc/{}/task", child.id());
    let is_stopped = |thread: fs::DirEntry| {
        let state = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        state.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 'Z', 'X']))
    };
    // Where there is no such folder, nobody can tell.
    while fs::read_dir(&threads).is_ok_and(|threads| !threads.flatten().all(is_stopped)) {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Kills a child's group and takes its exit status.
pub(crate) fn kill(child: &mut Child) -> io::Result<()> {
    if child.try_wait()?.is_none() {
        signal(child, Signal::KILL)?;
        child.wait()?;
    }
    Ok(())
}
