use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::{Error, ErrorKind, Moment, Name, Result};

/// While heads have to wait at the server, one in so many sees whether the next would have to.
const TRIED_AGAIN: u32 = 16;

/// One line per name for the tasks of this process: only its head asks the server.
///
/// So a thousand waiting tasks cost a server what one costs, and inside a process it is first come,
/// first served. A line exists while somebody stands in it.
#[derive(Debug)]
pub(crate) struct Lines {
    by_name: Mutex<HashMap<Name, (Arc<Line>, usize)>>,
    most_per_name: usize,
}

#[derive(Debug)]
struct Line {
    /// Its one permit is the turn; tokio's semaphore serves in order.
    turn: Semaphore,
    news: Mutex<News>,
    told: Notify,
}

/// What a head leaves for those behind it.
#[derive(Debug, Default)]
struct News {
    /// What it last heard: `None` before the first word, `Ok` for busy.
    word: Option<Result<()>>,
    /// Fires when its guard has ended; `None` if it got none.
    holds: Option<CancellationToken>,
    /// How many in a row, up to it, did not find the lock free.
    waited: u32,
}

/// A place in a line; leaving is dropping it.
#[derive(Debug)]
pub(crate) struct Place {
    lines: Arc<Lines>,
    line: Arc<Line>,
    name: Name,
}

/// The head of a line; dropping it lets the next one ask.
#[derive(Debug)]
pub(crate) struct Turn {
    place: Place,
    /// When the guard before ended, if that was waited for.
    pub(crate) told: Option<Moment>,
}

impl Lines {
    pub(crate) fn new(most_per_name: usize) -> Self {
        Self { by_name: Mutex::default(), most_per_name }
    }

    /// Takes the last place in a name's line.
    pub(crate) fn enter(self: &Arc<Self>, name: &Name) -> Result<Place> {
        let mut lines = self.lock();
        let everywhere: usize =
            if lines.len() < self.most_per_name { 0 } else { lines.values().map(|(_, n)| n).sum() };
        let (line, places) = lines.entry(name.clone()).or_insert_with(|| (Arc::new(Line::new()), 0));
        if *places >= self.most_per_name || everywhere >= self.most_per_name.saturating_mul(10) {
            let text = format!(
                "{places} tasks of this process wait for {name:?} already; the option `waiters` bounds them"
            );
            return Err(Error::new(ErrorKind::TooManyWaiters, text));
        }
        *places += 1;
        Ok(Place { lines: self.clone(), line: line.clone(), name: name.clone() })
    }

    /// Whether a task of this process stands in the name's line.
    pub(crate) fn is_waited_for(&self, name: &Name) -> bool {
        self.lock().contains_key(name)
    }

    /// How many tasks stand in all lines.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().values().map(|(_, places)| places).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, (Arc<Line>, usize)>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn new() -> Self {
        Self { turn: Semaphore::new(1), news: Mutex::default(), told: Notify::new() }
    }

    fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits until it is at the head; then [`at_head`](Self::at_head) takes the turn, at once.
    ///
    /// Dropping the future keeps the place's owner in the line, but at its end.
    pub(crate) async fn turn(&self) {
        // Nobody closes the semaphore.
        self.line.turn.acquire().await.expect("a line's turn is never closed").forget();
    }

    /// As [`turn`](Self::turn), if nobody stands in front.
    pub(crate) fn try_turn(&self) -> bool {
        self.line.turn.try_acquire().map(SemaphorePermit::forget).is_ok()
    }

    /// The turn that was waited for.
    pub(crate) fn at_head(self) -> Turn {
        Turn { place: self, told: None }
    }

    /// What the head of the line last heard from the server; waits for its first word.
    pub(crate) async fn word(&self) -> Result<()> {
        loop {
            let mut told = std::pin::pin!(self.line.told.notified());
            // Before the look, so that no word between the two is missed.
            told.as_mut().enable();
            if let Some(word) = &self.line.news().word {
                return word.clone();
            }
            told.await;
        }
    }
}

impl Turn {
    /// Tells those behind what the server said: `Ok` means that somebody holds the lock.
    pub(crate) fn heard(&self, word: Result<()>) {
        self.place.line.news().word = Some(word);
        self.place.line.told.notify_waiters();
    }

    /// Tells those behind that this head holds the lock until `ended` fires, and whether it found it free.
    pub(crate) fn holds(&self, ended: &CancellationToken, found_free: bool) {
        let mut news = self.place.line.news();
        news.waited = if found_free { 0 } else { news.waited.wrapping_add(1) };
        // The map has the line once, and each place; with nobody behind, nobody asks.
        news.holds = (Arc::strong_count(&self.place.line) > 2).then(|| ended.clone());
        drop(news);
        self.heard(Ok(()));
    }

    /// What fires when the guard before has ended, if nothing is gained by asking the server sooner.
    ///
    /// The lock cannot be free before. To ask at once is to take a place in the server's queue, and right
    /// if other processes wait there: heads do not find the lock free then. If none do, it is work that
    /// the release has to wait for; without it a lock is passed on within a process up to twice as fast.
    pub(crate) fn comes_after(&self) -> Option<CancellationToken> {
        let News { holds, waited, .. } = &mut *self.place.line.news();
        holds.take().filter(|_| *waited <= 1 || waited.is_multiple_of(TRIED_AGAIN))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.place.line.turn.add_permits(1);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        if let Some((_, places)) = lines.get_mut(&self.name) {
            *places -= 1;
            if *places == 0 {
                lines.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    #[tokio::test]
    async fn turns_are_taken_in_order_and_an_empty_line_is_forgotten() {
        let lines = Arc::new(Lines::new(10));
        let (a, b, c) = (
            lines.enter(&name("x")).unwrap(),
            lines.enter(&name("x")).unwrap(),
            lines.enter(&name("x")).unwrap(),
        );
        assert!(a.try_turn() && !b.try_turn());
        let first = a.at_head();
        let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
        for (label, place) in [("b", b), ("c", c)] {
            let tx = tx.clone();
            tokio::spawn(async move {
                place.turn().await;
                tx.send(label).unwrap();
                drop(place.at_head());
            });
            tokio::task::yield_now().await;
        }
        assert_eq!(lines.waiting(), 3);
        assert!(rx.try_recv().is_err());
        drop(first);
        assert_eq!((rx.recv().await, rx.recv().await), (Some("b"), Some("c")));
        drop(tx);
        assert_eq!(rx.recv().await, None);
        assert!(!lines.is_waited_for(&name("x")));
        assert!(lines.lock().is_empty());
    }

    #[test]
    fn a_head_asks_at_once_while_heads_have_to_wait_at_the_server_and_sees_at_times_if_they_still_do() {
        let lines = Arc::new(Lines::new(10));
        let head = || {
            let place = lines.enter(&name("x")).unwrap();
            assert!(place.try_turn());
            place.at_head()
        };
        let _behind = lines.enter(&name("x")).unwrap();
        let comes_after = |found_free: bool| {
            head().holds(&CancellationToken::new(), found_free);
            head().comes_after().is_some()
        };
        assert!(head().comes_after().is_none(), "nobody was before");
        assert!(comes_after(true) && comes_after(true));
        // The first may have waited for this process alone.
        let waiting: Vec<bool> = (0..33).map(|_| comes_after(false)).collect();
        let seen = waiting.iter().enumerate().filter_map(|(i, late)| late.then_some(i + 1));
        assert_eq!(seen.collect::<Vec<_>>(), [1, 16, 32]);
        assert!(comes_after(true));
        assert!(head().comes_after().is_none(), "once is enough");
    }

    #[test]
    fn waiters_are_bounded_for_one_name_and_for_all() {
        let lines = Arc::new(Lines::new(2));
        let _x = [lines.enter(&name("x")).unwrap(), lines.enter(&name("x")).unwrap()];
        assert_eq!(lines.enter(&name("x")).unwrap_err().kind(), ErrorKind::TooManyWaiters);
        let _others: Vec<Place> = (0..18).map(|i| lines.enter(&name(&format!("n{i}"))).unwrap()).collect();
        assert_eq!(lines.enter(&name("one more")).unwrap_err().kind(), ErrorKind::TooManyWaiters);
        drop(_others);
        assert!(lines.enter(&name("one more")).is_ok());
    }
}
