//! What a network profile says: the path, the fault, when it comes, and what has to come of it.
//!
//! Owns: the fields of `profiles.toml` and their defaults. Unknown fields are errors.

use anyhow::{Context, Result, ensure};
use lab::scenario::{Impairment, parse_changes};
use serde::Deserialize;
use std::time::Duration;

/// No way back is slower than this, however small the set.
const BACK_BITS_PER_SECOND_MIN: u64 = 256_000;
const LISTED: &str = include_str!("../profiles.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listing {
    profile: Vec<Profile>,
}

#[derive(Clone, Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Profile {
    pub name: String,
    /// Of the table in docs/reliability.md.
    pub faults: Vec<String>,
    pub why: String,
    /// Properties of the path in both directions, in the words of `thalweg lab set`.
    #[serde(default)]
    pub link: Vec<String>,
    /// Segments are lost one by one, not with the aggregate that they are part of.
    #[serde(default)]
    pub single_segments: bool,
    /// The way back to the client has this fraction of the rate.
    #[serde(default = "one")]
    pub asymmetry: u32,
    /// The set takes this many times as long on the path as usual.
    #[serde(default = "one")]
    pub stretch: u32,
    /// Lines of the client's hosts file; `{v4}`, `{v6}` and `{client}` stand for addresses.
    #[serde(default = "usual_names")]
    pub names: Vec<String>,
    /// Connections go through a relay before the server.
    #[serde(default)]
    pub relay: Option<Held>,
    /// Added to `thalweg cp`.
    #[serde(default)]
    pub arguments: Vec<String>,
    pub fault: Fault,
    /// The share of the bytes that have crossed when the fault comes; 0: it is there before the job.
    #[serde(default = "quarter")]
    pub at: f64,
    /// Seconds until it is taken back; none: when the first run of the command is over.
    #[serde(default)]
    pub lasts: Option<f64>,
    /// How often it comes, and the seconds between.
    #[serde(default = "one")]
    pub times: u32,
    #[serde(default)]
    pub pause: f64,
    #[serde(default)]
    pub expect: Expect,
    /// Words of which a lost job's error has to hold one.
    #[serde(default)]
    pub says: Vec<String>,
    /// Exit codes of a lost job.
    #[serde(default = "lost_exits")]
    pub exits: Vec<i32>,
    /// Seconds that one run of the command may take.
    #[serde(default = "usual_limit")]
    pub limit: u64,
    /// Among the few that run without `--all`.
    #[serde(default)]
    pub ci: bool,
    /// Too long for any campaign.
    #[serde(default)]
    pub only_by_name: bool,
}

#[derive(Clone, Copy, Deserialize, Debug)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Held {
    pub hold_bytes: usize,
    pub hold_ms: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// The command finishes without help.
    #[default]
    Keep,
    /// It gives up in time and says why; given again it finishes.
    Lost,
}

#[derive(Clone, Deserialize, Debug)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Fault {
    /// The path itself, as `link` says.
    Link { proof: Proof },
    /// The path changes.
    Change { words: Vec<String> },
    /// The rate falls to this part.
    Slow { divisor: u64 },
    /// Packets vanish without a word.
    Drop { target: Target, toward: Toward },
    /// A connection is reset at both ends.
    Reset { target: Target },
    /// A box resets what comes from the client; the server hears nothing of it.
    ForgeReset {},
    /// New connections after the first so many vanish: only the next one, or all.
    Admit {
        first: u32,
        #[serde(default)]
        only_one: bool,
    },
    /// The client's interface goes down.
    Nic {},
    /// The client's address goes, and another one comes.
    Address {},
    /// The client's process stands still behind a box that forgets idle flows.
    Sleep { forgets_after_seconds: u32 },
    /// The server's process stands still.
    Freeze {},
    /// The server is killed and started again.
    Restart {},
    /// The client's hosts file changes, and every connection is cut.
    Names {
        names: Vec<String>,
        #[serde(default)]
        other_endpoint: bool,
    },
}

/// What shows that the path's own fault took place.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    Lost,
    Duplicated,
    Corrupted,
    /// Packets that found the queue full.
    QueueDrops,
    /// The queue held several products of rate and round trip.
    QueueWaits,
    /// Segments that the receiver's kernel had to put in order.
    OutOfOrder,
    /// Packets that went through the path at all.
    Packets,
    /// Bytes that the relay held back.
    Relayed,
}

/// Which packets of the job's connections.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The busiest data stream.
    Stream,
    Control,
    AllButControl,
    All,
    /// Packets of more than 1000 bytes.
    Long,
    /// Everything of IPv6.
    Ipv6,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Toward {
    Server,
    Client,
    Both,
}

impl Profile {
    /// All that are listed, in order.
    pub fn all() -> Result<Vec<Profile>> {
        let listing: Listing = toml::from_str(LISTED).context("read the list of profiles")?;
        for profile in &listing.profile {
            let is_said = profile.expect == Expect::Keep || !profile.says.is_empty();
            ensure!(is_said, "profile {}: a lost job has to say something", profile.name);
            profile.directions(1_000_000).with_context(|| format!("profile {}", profile.name))?;
        }
        Ok(listing.profile)
    }

    /// From the client to the server, and back.
    pub fn directions(&self, bits_per_second: u64) -> Result<[Impairment; 2]> {
        let bits_per_second = bits_per_second / u64::from(self.stretch);
        let usual = Impairment {
            delay: Duration::from_millis(10),
            bits_per_second: Some(bits_per_second),
            ..Impairment::default()
        };
        let mut directions = changed([usual; 2], &self.link)?;
        if self.asymmetry > 1 {
            let back = (bits_per_second / u64::from(self.asymmetry)).max(BACK_BITS_PER_SECOND_MIN);
            directions[1].bits_per_second = Some(back);
        }
        Ok(directions)
    }

    pub fn faults(&self) -> Vec<&str> {
        self.faults.iter().map(String::as_str).collect()
    }
}

/// The directions after changes in the words of `thalweg lab set`.
pub fn changed(mut directions: [Impairment; 2], words: &[String]) -> Result<[Impairment; 2]> {
    if words.is_empty() {
        return Ok(directions);
    }
    for (only, change) in parse_changes(words)? {
        for (index, direction) in directions.iter_mut().enumerate() {
            if only.is_none_or(|only| only == index) {
                *direction = direction.with(&change);
            }
        }
    }
    Ok(directions)
}

fn one() -> u32 {
    1
}

fn quarter() -> f64 {
    0.25
}

fn usual_limit() -> u64 {
    120
}

fn usual_names() -> Vec<String> {
    vec!["{v4} far".into()]
}

/// Temporary errors outlasted the retries; unreachable.
fn lost_exits() -> Vec<i32> {
    vec![5, 43]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn forty_profiles_and_a_long_one_are_listed_each_by_itself_and_cover_the_faults_of_the_network() {
        let profiles = Profile::all().unwrap();
        assert_eq!(profiles.iter().filter(|profile| !profile.only_by_name).count(), 40);
        assert_eq!(profiles.iter().filter(|profile| profile.ci).count(), 5);
        let names: BTreeSet<_> = profiles.iter().map(|profile| &profile.name).collect();
        let reasons: BTreeSet<_> = profiles.iter().map(|profile| &profile.why).collect();
        assert_eq!((names.len(), reasons.len()), (profiles.len(), profiles.len()));
        let covered: BTreeSet<_> = profiles.iter().flat_map(|profile| profile.faults()).collect();
        for number in 98..=108 {
            assert!(covered.contains(format!("F{number:03}").as_str()), "F{number:03}");
        }
    }

    /// What a profile waits for is looked for in the product's source: a message that is reworded would fail only in a campaign.
    #[test]
    fn what_a_profile_expects_to_be_said_is_said_by_the_program() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut pending: Vec<_> = ["mover", "net", "transfer"].map(|name| crates.join(name).join("src")).into();
        let mut texts = String::new();
        while let Some(path) = pending.pop() {
            match path.is_dir() {
                true => pending.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path())),
                false => texts.push_str(&std::fs::read_to_string(path).unwrap()),
            }
        }
        // In literals: a comment or a name with these words says nothing to a user.
        let is_said =
            |words: &str| texts.lines().any(|line| line.split('"').skip(1).step_by(2).any(|text| text.contains(words)));
        for profile in Profile::all().unwrap() {
            for words in &profile.says {
                assert!(is_said(words), "{}: nothing in the program says {words:?}", profile.name);
            }
        }
    }

    #[test]
    fn the_way_back_may_be_slower() {
        let profiles = Profile::all().unwrap();
        let asymmetric = profiles.iter().find(|profile| profile.name == "asymmetric").unwrap();
        let rates = asymmetric.directions(80_000_000).unwrap().map(|direction| direction.bits_per_second);
        assert_eq!(rates, [Some(80_000_000), Some(800_000)]);
    }
}
