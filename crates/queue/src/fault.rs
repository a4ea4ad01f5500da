//! What an error leads to, by its exit code.

use model::Exit;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Tried again after a pause.
    Transient,
    /// The endpoint cannot be reached.
    Endpoint,
    Space,
    Credentials,
    /// Objects failed: one more pass over them.
    Objects,
    Permanent,
}

/// Attempts without progress before a job fails.
pub const FAILURES_MAX: u32 = 12;
/// Times that space is looked for, a minute apart: a day.
pub const SPACE_MAX: u32 = 1440;
pub const SPACE_MS: u64 = 60_000;
/// How long new credentials are waited for.
pub const CREDENTIALS_MS: u64 = 14 * 86_400_000;
/// The pause before the one further pass over objects that failed.
pub const PASS_MS: u64 = 600_000;
pub const PASSES_MAX: u32 = 1;
/// Pauses between tries, and what is between looks at an endpoint that does not answer.
const PAUSE_FIRST_MS: u64 = 5_000;
const PAUSE_MAX_MS: u64 = 600_000;
pub const PROBE_FIRST_MS: u64 = 1_000;
pub const PROBE_MAX_MS: u64 = 30_000;

impl Fault {
    pub fn of(code: i32) -> Fault {
        match Exit::from_number(code) {
            Exit::Usage if model::mutant::is_on("queue-retries-a-missing-path") => Fault::Transient,
            Exit::Temporary => Fault::Transient,
            Exit::Unreachable => Fault::Endpoint,
            Exit::NoSpace => Fault::Space,
            Exit::Authentication => Fault::Credentials,
            Exit::Partial | Exit::Changed => Fault::Objects,
            _ => Fault::Permanent,
        }
    }
}

/// The pause after so many failures in a row: 5 s, doubling to 10 minutes, spread by `spread` of 0..=255 over a quarter more or less.
pub fn pause_ms(failures: u32, spread: u8) -> u64 {
    let pause = PAUSE_FIRST_MS.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(PAUSE_MAX_MS);
    pause * (384 + u64::from(spread)) / 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_ten_minutes_and_are_spread_by_a_quarter() {
        assert_eq!((pause_ms(1, 0), pause_ms(1, 128), pause_ms(1, 255)), (3_750, 5_000, 6_240));
        assert_eq!((pause_ms(2, 128), pause_ms(8, 128), pause_ms(u32::MAX, 128)), (10_000, 600_000, 600_000));
    }

    #[test]
    fn each_code_has_its_class() {
        for (code, fault) in [
            (5, Fault::Transient),
            (43, Fault::Endpoint),
            (44, Fault::Space),
            (41, Fault::Credentials),
            (23, Fault::Objects),
            (24, Fault::Objects),
            (2, Fault::Permanent),
            (40, Fault::Permanent),
            (999, Fault::Permanent),
        ] {
            assert_eq!(Fault::of(code), fault, "{code}");
        }
    }
}
