//! Which cipher records are sealed with: the order of suites that this process offers, and the library that carries each.
//!
//! No library is the fastest everywhere: aws-lc leads with AVX-512, ring on processors that have VAES without it. So each pair
//! of suite and library seals a few records of 16 KiB, once in a process, in less than 2 ms
//! (docs/decisions/012-every-processor.md).
//!
//! Invariants: all suites are those of TLS 1.3 with 128 bits of security and more; a library never changes what is on the wire.
//!
//! Not here: the handshake, which is aws-lc's alone (`tls`), what a key does (`aead`).

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs::cipher_suite as offered;
use rustls::{CipherSuite, SupportedCipherSuite};

use crate::aead::{self, Key, Plaintext};
pub use crate::aead::{Library, Suite};

/// In the order of preference among those that are as fast.
const SUITES: [Suite; 3] = [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::Chacha20Poly1305];
const LIBRARIES: [Library; 2] = [Library::AwsLc, Library::Ring];
/// The longest record, which bulk data fills.
const RECORD_BYTES: usize = 16 << 10;
/// The best of so many records counts, the first of which also loads code and tables.
const RECORDS: usize = 8;
/// A pair that is slow needs no second record to show it.
const PATIENCE: Duration = Duration::from_micros(150);
/// What is faster by less than this is as fast: the order does not change with the noise of a measurement.
const MARGIN: f64 = 1.1;

static WANTED: OnceLock<Wanted> = OnceLock::new();
static CHOICE: OnceLock<Choice> = OnceLock::new();

/// What the user asks for instead of the measurement: `SUITE[/LIBRARY]`, where the suite may be `auto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub suite: Option<Suite>,
    pub library: Option<Library>,
}

/// Has every connection of this process use these. Before the first one is prepared: the first choice holds.
pub fn want(wanted: Wanted) {
    if wanted != Wanted::default() {
        let _ = WANTED.set(wanted);
    }
}

/// What this process uses, measured at the first call.
pub fn chosen() -> &'static Choice {
    CHOICE.get_or_init(|| Choice::new(WANTED.get().copied().unwrap_or_default(), measured))
}

impl Suite {
    pub fn name(self) -> &'static str {
        match self {
            Suite::Aes128Gcm => "aes-128-gcm",
            Suite::Aes256Gcm => "aes-256-gcm",
            Suite::Chacha20Poly1305 => "chacha20-poly1305",
        }
    }

    pub(crate) fn of(suite: CipherSuite) -> Option<Suite> {
        SUITES.into_iter().find(|known| known.offered().suite() == suite)
    }

    fn offered(self) -> SupportedCipherSuite {
        match self {
            Suite::Aes128Gcm => offered::TLS13_AES_128_GCM_SHA256,
            Suite::Aes256Gcm => offered::TLS13_AES_256_GCM_SHA384,
            Suite::Chacha20Poly1305 => offered::TLS13_CHACHA20_POLY1305_SHA256,
        }
    }

    fn key_bytes(self) -> usize {
        if self == Suite::Aes128Gcm { 16 } else { 32 }
    }
}

impl Library {
    pub fn name(self) -> &'static str {
        match self {
            Library::AwsLc => "aws-lc",
            Library::Ring => "ring",
        }
    }
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Wanted, String> {
        let (suite, library) = text.split_once('/').map_or((text, None), |(suite, library)| (suite, Some(library)));
        let suite = match suite {
            "auto" => None,
            name => Some(SUITES.into_iter().find(|suite| suite.name() == name).ok_or_else(|| {
                format!("there is no cipher {name:?}; there are auto, aes-128-gcm, aes-256-gcm and chacha20-poly1305")
            })?),
        };
        let named = |name| LIBRARIES.into_iter().find(|library| library.name() == name);
        let library = library
            .map(|name| named(name).ok_or_else(|| format!("there is no library {name:?}; there are aws-lc and ring")))
            .transpose()?;
        Ok(Wanted { suite, library })
    }
}

/// The suites in the order in which they are offered, each with its library.
pub struct Choice {
    ranked: Vec<Ranked>,
    is_wanted: bool,
}

struct Ranked {
    suite: Suite,
    library: Library,
    /// Of each library that came into question, in GB/s of one core.
    rates: Vec<(Library, f64)>,
}

impl Choice {
    fn new(wanted: Wanted, measured: impl Fn(Suite, Library) -> f64) -> Choice {
        let libraries = LIBRARIES.into_iter().filter(|library| wanted.library.is_none_or(|wanted| wanted == *library));
        let suites = SUITES.into_iter().filter(|suite| wanted.suite.is_none_or(|wanted| wanted == *suite));
        let rank = |suite| {
            let rates: Vec<_> = libraries.clone().map(|library| (library, measured(suite, library))).collect();
            let (library, _) = rates[first_fastest(rates.iter().map(|(_, rate)| *rate))];
            Ranked { suite, library, rates }
        };
        let mut left: Vec<Ranked> = suites.map(rank).collect();
        let mut ranked = Vec::with_capacity(left.len());
        while !left.is_empty() {
            ranked.push(left.remove(first_fastest(left.iter().map(Ranked::rate))));
        }
        Choice { ranked, is_wanted: wanted != Wanted::default() }
    }

    /// What the handshake offers or accepts, in this order.
    pub(crate) fn offered(&self) -> Vec<SupportedCipherSuite> {
        self.ranked.iter().map(|ranked| ranked.suite.offered()).collect()
    }

    /// AES costs more than ChaCha20 only where the processor has no instructions for it, and then several times as much: such a
    /// processor is the slower end of its connections, whatever the other one is. So ChaCha20 is taken as soon as one end has it
    /// first. The dialling end's order decides otherwise.
    pub(crate) fn overrules_client(&self) -> bool {
        self.ranked[0].suite == Suite::Chacha20Poly1305
    }

    pub(crate) fn library(&self, suite: Suite) -> Library {
        // A suite that was not offered is not agreed on; if it were, the choice of the library would do no harm.
        self.ranked.iter().find(|ranked| ranked.suite == suite).map_or(Library::AwsLc, |ranked| ranked.library)
    }

    /// What one core seals under the suite that this process prefers, in GB/s.
    pub fn gb_per_second(&self) -> f64 {
        self.ranked[0].rate()
    }

    /// What carries records under this suite here and why, for people.
    pub fn note(&self, suite: Suite) -> String {
        let Some(ranked) = self.ranked.iter().find(|ranked| ranked.suite == suite) else {
            return suite.name().to_owned();
        };
        let others = ranked.rates.iter().filter(|(library, _)| *library != ranked.library);
        let others: String = others.map(|(library, rate)| format!(", {} {rate:.1}", library.name())).collect();
        let why = if self.is_wanted { ", as --cipher asks" } else { "" };
        format!("{} by {} at {:.1} GB/s on one core{others}{why}", suite.name(), ranked.library.name(), ranked.rate())
    }
}

/// What this process prefers.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.note(self.ranked[0].suite))
    }
}

impl Ranked {
    fn rate(&self) -> f64 {
        self.rates.iter().find(|(library, _)| *library == self.library).map_or(0.0, |(_, rate)| *rate)
    }
}

/// The first of those that are as fast as the fastest.
fn first_fastest(rates: impl Iterator<Item = f64> + Clone) -> usize {
    let fastest = rates.clone().fold(0.0, f64::max);
    rates.clone().position(|rate| rate * MARGIN >= fastest).unwrap_or(0)
}

/// What one core seals, in GB/s: the best record counts, because whatever disturbs a measurement makes it longer.
fn measured(suite: Suite, library: Library) -> f64 {
    let key = [0x5a; 32];
    let Ok(key) = Key::new(suite, library, &key[..suite.key_bytes()]) else { return 0.0 };
    let plaintext = vec![0; RECORD_BYTES];
    let mut record = vec![0; RECORD_BYTES + 1 + aead::TAG_BYTES];
    let best = shortest(|| {
        let started = Instant::now();
        // The key is known to everybody and protects nothing: its nonce may repeat.
        key.seal([0; aead::NONCE_BYTES], [0; 5], Plaintext::Elsewhere(&plaintext), 0, &mut record).ok()?;
        Some(started.elapsed())
    });
    best.map_or(0.0, |best| RECORD_BYTES as f64 / best.as_nanos().max(1) as f64)
}

/// The shortest time of `RECORDS` records, or of as many as there is patience for. Nothing where one has no time.
fn shortest(mut timed: impl FnMut() -> Option<Duration>) -> Option<Duration> {
    let (mut spent, mut best) = (Duration::ZERO, Duration::MAX);
    for _ in 0..RECORDS {
        let time = timed()?;
        (spent, best) = (spent + time, best.min(time));
        if spent > PATIENCE {
            break;
        }
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(wanted: &str, rates: [[f64; 2]; 3]) -> Choice {
        Choice::new(wanted.parse().unwrap(), move |suite, library| rates[suite as usize][library as usize])
    }

    fn order(choice: &Choice) -> Vec<(Suite, Library)> {
        choice.ranked.iter().map(|ranked| (ranked.suite, ranked.library)).collect()
    }

    const VAES: [[f64; 2]; 3] = [[4.2, 7.1], [3.9, 6.4], [2.2, 2.3]];
    const NO_AES: [[f64; 2]; 3] = [[0.1, 0.1], [0.08, 0.07], [0.4, 0.6]];

    #[test]
    fn the_faster_library_carries_each_suite_and_a_tie_changes_nothing() {
        use {Library::*, Suite::*};
        assert_eq!(order(&choice("auto", VAES)), [(Aes128Gcm, Ring), (Aes256Gcm, Ring), (Chacha20Poly1305, AwsLc)]);
        let tie = [[7.0, 7.3], [7.1, 7.0], [7.2, 7.2]];
        assert_eq!(order(&choice("auto", tie)), [(Aes128Gcm, AwsLc), (Aes256Gcm, AwsLc), (Chacha20Poly1305, AwsLc)]);
        assert!(!choice("auto", tie).overrules_client());
    }

    #[test]
    fn a_processor_without_aes_prefers_chacha20_and_says_so_to_its_clients() {
        use {Library::*, Suite::*};
        let choice = choice("auto", NO_AES);
        assert_eq!(order(&choice), [(Chacha20Poly1305, Ring), (Aes128Gcm, AwsLc), (Aes256Gcm, AwsLc)]);
        assert!(choice.overrules_client());
    }

    #[test]
    fn what_is_asked_for_is_all_that_is_offered() {
        use {Library::*, Suite::*};
        assert_eq!(order(&choice("aes-256-gcm", NO_AES)), [(Aes256Gcm, AwsLc)]);
        assert_eq!(order(&choice("aes-128-gcm/aws-lc", VAES)), [(Aes128Gcm, AwsLc)]);
        assert_eq!(order(&choice("auto/ring", VAES)).len(), 3);
        assert!(order(&choice("auto/ring", VAES)).iter().all(|(_, library)| *library == Ring));
    }

    #[test]
    fn names_that_mean_nothing_are_refused_with_those_that_do() {
        assert!("aes".parse::<Wanted>().unwrap_err().contains("aes-128-gcm"));
        assert!("auto/openssl".parse::<Wanted>().unwrap_err().contains("ring"));
        assert!("auto/".parse::<Wanted>().is_err() && "".parse::<Wanted>().is_err());
        assert_eq!("auto".parse(), Ok(Wanted::default()));
    }

    #[test]
    fn the_note_names_what_was_left() {
        assert_eq!(choice("auto", VAES).to_string(), "aes-128-gcm by ring at 7.1 GB/s on one core, aws-lc 4.2");
        let forced = choice("aes-128-gcm/aws-lc", VAES).to_string();
        assert_eq!(forced, "aes-128-gcm by aws-lc at 4.2 GB/s on one core, as --cipher asks");
    }

    #[test]
    fn a_slow_pair_is_measured_by_one_record_and_a_quick_one_by_its_best() {
        let us = Duration::from_micros;
        let timed = |times: &[Duration]| {
            let mut left = times.iter().copied();
            (shortest(|| left.next()), left.len())
        };
        assert_eq!(timed(&[PATIENCE + us(1), us(1)]), (Some(PATIENCE + us(1)), 1));
        assert_eq!(timed(&[PATIENCE / 2, PATIENCE, us(1)]), (Some(PATIENCE / 2), 1));
        let quick = [9, 8, 7, 4, 5, 6, 7, 8, 1].map(us);
        assert_eq!(timed(&quick), (Some(us(4)), quick.len() - RECORDS));
        assert_eq!(timed(&[us(1)]).0, None, "one that cannot be sealed has no time");
        // What every process waits for before its first connection, beyond a record of each pair.
        assert!(PATIENCE * (SUITES.len() * LIBRARIES.len()) as u32 <= Duration::from_millis(1));
    }

    #[test]
    fn every_pair_can_be_measured() {
        for suite in SUITES {
            assert!(LIBRARIES.iter().all(|library| measured(suite, *library) > 0.0), "{suite:?}");
        }
    }
}
