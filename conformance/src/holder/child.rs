use std::{
    env, fs,
    io::{self, BufRead, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use lock_core::{Guard, Locks, Moment, Options, Release};

use super::{Answer, Order, Setting};
use crate::{
    Fixture, mutants,
    process::{ROLE, die_with_parent},
};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What the re-executed binary does for [`Holder`](super::Holder); `None` if it is not one.
pub(crate) fn run(fixture: &Arc<dyn Fixture>) -> Option<ExitCode> {
    let setting = env::var(ROLE).ok()?;
    die_with_parent();
    let ended = tokio::runtime::Runtime::new().map_err(Error::from).and_then(|runtime| {
        let setting = serde_json::from_str(&setting)?;
        runtime.block_on(serve(&**fixture, setting))
    });
    Some(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = say(&Answer::Failed { error: error.to_string() });
            ExitCode::FAILURE
        }
    })
}

async fn serve(fixture: &dyn Fixture, setting: Setting) -> Result<(), Error> {
    let backend = mutants::wrap(fixture.connect(&setting.url).await?.into());
    let options = Options::default().with_ttl(setting.ttl).with_verb_limit(setting.ttl);
    let locks = Locks::with_options(backend, options)?;
    say(&Answer::Ready)?;
    let (sender, mut orders) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let mut guard = None;
    while let Some(line) = orders.recv().await {
        let answer = obey(&locks, &mut guard, serde_json::from_str(&line)?).await;
        say(&answer.unwrap_or_else(|error| Answer::Failed { error: error.to_string() }))?;
    }
    Ok(())
}

async fn obey(locks: &Locks, guard: &mut Option<Guard>, order: Order) -> Result<Answer, Error> {
    match order {
        Order::Acquire { name } => {
            *guard = Some(locks.lock(name)?.acquire().await?);
            grip(guard.as_ref(), true)
        }
        Order::Look => grip(guard.as_ref(), false),
        Order::Release => {
            let guard = guard.take().ok_or("there is no guard to release")?;
            let called = Moment::now().since_start();
            let was_held = matches!(guard.release().await?, Release::Released);
            Ok(Answer::Released { called, was_held })
        }
        Order::Increment { name, file, times } => {
            let lock = locks.lock(name)?;
            for _ in 0..times {
                let guard = lock.acquire().await?;
                increment(&file).await?;
                guard.release().await?;
            }
            Ok(Answer::Done)
        }
    }
}

fn grip(guard: Option<&Guard>, new: bool) -> Result<Answer, Error> {
    let guard = guard.ok_or("there is no guard to look at")?;
    let at = Moment::now().since_start();
    let (held, remaining) = (guard.is_held(), guard.remaining());
    Ok(Answer::Grip { held, remaining, token: guard.fencing_token().value(), at, new })
}

/// Reads, lets others run, writes: loses an update whenever two do it at once.
async fn increment(file: &Path) -> io::Result<()> {
    let number: u64 = fs::read_to_string(file)?.trim().parse().map_err(io::Error::other)?;
    tokio::task::yield_now().await;
    fs::write(file, (number + 1).to_string())
}

fn say(answer: &Answer) -> Result<(), Error> {
    let mut output = io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(answer)?)?;
    Ok(output.flush()?)
}
