//! One setting: a value for a flag, and the file it comes from.

use crate::args::destructive::{Where, place_of};
use crate::exit::{Error, usage};
use crate::output::shown;
use model::mutant;
use std::path::PathBuf;

/// Where a setting comes from, the least telling first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Layer {
    System,
    User,
    /// A file that was named instead of both.
    Named,
    Profile(String),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    pub layer: Layer,
    pub file: PathBuf,
    pub line: usize,
}

/// A value, or several, for one flag of a command and of those below it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Empty for every command that has the flag.
    pub command: Vec<String>,
    pub flag: String,
    pub values: Vec<String>,
    pub origin: Origin,
}

/// A file that is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub layer: Layer,
    pub file: PathBuf,
}

impl Layer {
    pub fn word(&self) -> String {
        match self {
            Layer::System => "system file".into(),
            Layer::User => "user file".into(),
            Layer::Named => "named file".into(),
            Layer::Profile(name) => format!("profile {name}"),
        }
    }
}

impl Origin {
    /// `profile fast, /home/a/.config/thalweg/config.toml:12`.
    pub fn text(&self) -> String {
        format!("{}, {}:{}", self.layer.word(), shown(&self.file), self.line)
    }
}

impl Setting {
    /// It switches something off, and so excludes nothing.
    pub fn is_off(&self) -> bool {
        self.values == ["false"]
    }

    /// Both stand in the table of one command. Those for all commands may be meant for two of them.
    pub fn is_beside(&self, other: &Setting) -> bool {
        let (own, its) = (&self.origin, &other.origin);
        !self.command.is_empty() && self.command == other.command && own.layer == its.layer && own.file == its.file
    }

    /// For two that exclude each other in the table of one command.
    pub fn contradicts(&self, other: &Setting) -> Error {
        let Origin { file, line, .. } = &self.origin;
        let text = format!("{}:{line}: {} and {} exclude each other", shown(file), self.flag, other.flag);
        usage(text, "remove one of the two lines")
    }
}

/// Whether a setting may hold for a command at all: a destructive flag only from the command's own table.
pub fn may_set(setting: &Setting, command: &[&str]) -> bool {
    let is_own = || setting.command == command && !matches!(setting.origin.layer, Layer::Profile(_));
    match place_of(command, &setting.flag) {
        None => true,
        Some(Where::OwnTable) => is_own(),
        Some(Where::CommandLine) => mutant::is_on("variable-arms-removal"),
    }
}
