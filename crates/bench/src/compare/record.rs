//! What a race leaves: the report and what is in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::environment::{Environment, Program};
use crate::sample::Sample;
use crate::tool::ends::Class;

/// Everything a reader needs to judge the figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    pub environment: Environment,
    pub regenerate: String,
    pub rounds: u32,
    pub seed: u64,
    pub tools: Vec<ToolRecord>,
    /// Tools that did not take part, and why.
    pub missing: Vec<String>,
    pub sets: Vec<SetRecord>,
    pub notes: Vec<String>,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolRecord {
    pub name: String,
    pub class: Class,
    pub version: String,
    pub protection: String,
    pub is_encrypted: bool,
    pub is_digested: bool,
    /// What a person does before the first transfer.
    pub setup_steps: Vec<String>,
    /// What this program took for those of them that it does: configuration, keys, start of the server until it is ready.
    pub setup_seconds: Option<f64>,
    /// The programs that its commands start, by their names.
    pub programs: BTreeMap<String, Program>,
    /// As given, with the run's folder and addresses.
    pub server: String,
    /// Per set.
    pub clients: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SetRecord {
    pub name: String,
    pub files: u64,
    pub directories: u64,
    pub bytes: u64,
}
