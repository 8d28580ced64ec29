//! How often and how long to wait before trying again.

use std::time::{Duration, SystemTime};

use rand::TryRng;
use rand::rngs::SysRng;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

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

/// The pause before the second try, unless told otherwise.
pub(super) const FIRST: Duration = Duration::from_millis(250);

impl Backoff {
    /// Five tries, the first pause as given.
    pub(super) fn new(first: Duration) -> Self {
        Self { tries: 5, first, longest: Duration::from_secs(120) }
    }

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

/// `Retry-After` (RFC 9110, section 10.2.3): seconds, or a date, which is measured from `now`.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // The date of HTTP is one of those of mail; GMT is a zone that mail knows as well.
    let date = OffsetDateTime::parse(text, &Rfc2822).ok()?;
    Some(SystemTime::from(date).duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_date_is_as_good_as_seconds() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let asked = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, text.parse().unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(asked("Sun, 06 Nov 1994 08:50:07 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(asked("Sat, 05 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        assert_eq!(asked(" 17 "), Some(Duration::from_secs(17)));
        assert_eq!(asked("-1"), None);
        assert_eq!(asked("soon"), None);
    }

    #[test]
    fn pauses_grow_obey_the_server_and_end() {
        let backoff = Backoff::new(FIRST);
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
