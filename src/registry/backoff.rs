//! How often and how long to wait before trying again.

use std::time::Duration;

use rand::TryRng;
use rand::rngs::SysRng;

/// Five tries, with pauses of about 0.25, 0.5, 1 and 2 seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backoff {
    /// Tries in all, the first included.
    pub(super) tries: u32,
    /// The pause before the second try; each later one is twice as long.
    pub(super) first: Duration,
    /// The longest `Retry-After` that is obeyed; a registry that wants more ends the push.
    pub(super) longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { tries: 5, first: Duration::from_millis(250), longest: Duration::from_secs(120) }
    }
}

impl Backoff {
    /// The pause after the `tried`-th try failed (from 1), or nothing when it is time to give up.
    ///
    /// `asked` is the server's `Retry-After`. A quarter of chance is added, so that many pushes that failed
    /// together don't come back together.
    pub(super) fn pause(&self, tried: u32, asked: Option<Duration>) -> Option<Duration> {
        if tried >= self.tries || asked.is_some_and(|asked| asked > self.longest) {
            return None;
        }
        let own = self.first.saturating_mul(1 << (tried - 1).min(16));
        let pause = asked.map_or(own, |asked| asked.max(own));
        // Without randomness the pause is merely less spread.
        let chance = SysRng.try_next_u32().unwrap_or(0);
        Some(pause + pause.mul_f64(f64::from(chance) / f64::from(u32::MAX) / 4.0))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pauses_grow_obey_the_server_and_end() {
        let backoff = Backoff::default();
        let mut least = Duration::from_millis(250);
        for tried in 1..5 {
            let pause = backoff.pause(tried, None).unwrap();
            assert!(pause >= least && pause <= least.mul_f64(1.26), "{tried}: {pause:?}");
            least *= 2;
        }
        assert_eq!(backoff.pause(5, None), None);
        assert!(backoff.pause(1, Some(Duration::from_secs(7))).unwrap() >= Duration::from_secs(7));
        assert!(backoff.pause(4, Some(Duration::ZERO)).unwrap() >= Duration::from_secs(2));
        assert_eq!(backoff.pause(1, Some(Duration::from_secs(3600))), None);
    }
}
