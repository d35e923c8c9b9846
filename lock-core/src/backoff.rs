use std::time::Duration;

/// A pause that doubles with every use up to a cap, shortened by up to half at random.
///
/// The jitter keeps processes that were woken by one event from asking in step for ever after.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    cap: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, cap: Duration) -> Self {
        Self { first, cap, next: first }
    }

    pub(crate) fn pause(&mut self) -> Duration {
        let full = self.next.min(self.cap);
        self.next = full.saturating_mul(2);
        full.mul_f64(1.0 - random_part() / 2.0)
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A number from 0 up to 1.
pub(crate) fn random_part() -> f64 {
    // Without randomness there is no jitter, and nothing else is lost.
    f64::from(getrandom::u32().unwrap_or(0)) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_and_differ() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(10), ms(70));
        for full in [10, 20, 40, 70, 70] {
            let pause = backoff.pause();
            assert!(pause > ms(full) / 2 && pause <= ms(full), "{pause:?} of {full}");
        }
        backoff.reset();
        assert!(backoff.pause() <= ms(10));
        let drawn: Vec<f64> = (0..50).map(|_| random_part()).collect();
        assert!(drawn.iter().any(|x| *x < 0.5) && drawn.iter().any(|x| *x >= 0.5), "{drawn:?}");
    }
}
