//! Where the program keeps its own files: the XDG base directories, each with one `thalweg` below it.
//!
//! Invariant: a directory made here has mode 0700, and one that is there is trusted (`trust`) or refused. Reading the
//! environment happens in `from_env` only.

use crate::dumps;
use crate::error::{Error, Result};
use crate::trust;
use model::{Exit, mutant};
use net::Identity;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paths {
    /// What a person may edit: known endpoints.
    pub config: PathBuf,
    /// What must survive: identity, credential, enrolled clients, ledger, transfer log.
    pub state: PathBuf,
    /// What may be deleted at any time.
    pub cache: PathBuf,
    /// What ends with the login session; below `state` where the system offers no such directory.
    pub runtime: PathBuf,
}

impl Paths {
    /// From the process's environment; without HOME, the user database names the home directory.
    ///
    /// A runtime directory of another user's, as `su` and `sudo -E` leave it, counts as unset: it is that user's session.
    pub fn from_env() -> Result<Paths> {
        let is_own = |path: &OsString| std::fs::metadata(path).ok().is_none_or(|found| trust::is_trusted(found.uid()));
        Paths::from_values(|name| match (name, std::env::var_os(name)) {
            ("HOME", None) => std::env::home_dir().map(OsString::from),
            ("XDG_RUNTIME_DIR", value) if !mutant::is_on("follow-a-planted-link") => value.filter(is_own),
            (_, value) => value,
        })
    }

    /// From the values of environment variables. Empty values count as unset, and so do relative ones, as the XDG
    /// specification wants it; `THALWEG_STATE_DIR` may be relative because a person types it.
    pub fn from_values(value: impl Fn(&str) -> Option<OsString>) -> Result<Paths> {
        let set = |name: &str| value(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home = set("HOME").filter(|home| home.is_absolute());
        let base = |variable: &str, below_home: &str| {
            let named = set(variable).filter(|path| path.is_absolute());
            let found = named.or_else(|| home.as_ref().map(|home| home.join(below_home)));
            found.map(|base| base.join("thalweg")).ok_or_else(|| {
                Error::new(
                    Exit::Failed,
                    format!("neither {variable} nor HOME is set, so there is no place to keep files"),
                )
                .hint("set HOME")
            })
        };
        let state = match set("THALWEG_STATE_DIR") {
            Some(state) => state,
            None => base("XDG_STATE_HOME", ".local/state")?,
        };
        let runtime = set("XDG_RUNTIME_DIR").filter(|path| path.is_absolute());
        Ok(Paths {
            config: base("XDG_CONFIG_HOME", ".config")?,
            cache: base("XDG_CACHE_HOME", ".cache")?,
            runtime: runtime.map_or_else(|| state.join("run"), |base| base.join("thalweg")),
            state,
        })
    }

    /// With `--state-dir`, where it is given.
    pub fn with_state(mut self, state: Option<PathBuf>) -> Paths {
        if let Some(state) = state {
            if self.runtime == self.state.join("run") {
                self.runtime = state.join("run");
            }
            self.state = state;
        }
        self
    }

    /// The directory of the known endpoints.
    pub fn endpoints(&self) -> PathBuf {
        self.config.join("endpoints")
    }

    /// The log of the endpoint that keeps its files here, unless it was told to keep it elsewhere.
    pub fn transfer_log(&self) -> PathBuf {
        self.state.join("transfers.jsonl")
    }

    /// This host's identity, made on first use. Endpoint and client of one state directory share it.
    pub fn identity(&self) -> Result<Identity> {
        identity(&self.state)
    }
}

/// The identity kept in a state directory.
pub(crate) fn identity(state: &Path) -> Result<Identity> {
    trust::make_private_directory(state)?;
    dumps::forbid();
    let key = state.join("identity.key");
    if let Ok(found) = std::fs::symlink_metadata(&key)
        && !trust::is_trusted(found.uid())
    {
        trust::check_file("the identity", &key, &found)?;
    }
    Identity::load_or_create(&key).map_err(|e| Error::from_net("identity", &e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn paths(values: &[(&str, &str)]) -> Result<Paths> {
        Paths::from_values(|name| values.iter().find(|(n, _)| *n == name).map(|(_, v)| v.into()))
    }

    #[test]
    fn home_alone_is_enough_and_nothing_is_an_error() {
        let found = paths(&[("HOME", "/home/a")]).unwrap();
        assert_eq!(found.config, Path::new("/home/a/.config/thalweg"));
        assert_eq!(found.state, Path::new("/home/a/.local/state/thalweg"));
        assert_eq!(found.cache, Path::new("/home/a/.cache/thalweg"));
        assert_eq!(found.runtime, found.state.join("run"));
        assert_eq!(found.endpoints(), found.config.join("endpoints"));
        assert!(paths(&[]).unwrap_err().hint.is_some());
    }

    #[test]
    fn set_directories_win_and_relative_or_empty_ones_do_not_count() {
        let found = paths(&[
            ("HOME", "/h"),
            ("XDG_CONFIG_HOME", "/c"),
            ("XDG_STATE_HOME", "relative"),
            ("XDG_CACHE_HOME", ""),
            ("XDG_RUNTIME_DIR", "/run/user/7"),
        ])
        .unwrap();
        assert_eq!(found.config, Path::new("/c/thalweg"));
        assert_eq!(found.state, Path::new("/h/.local/state/thalweg"));
        assert_eq!(found.cache, Path::new("/h/.cache/thalweg"));
        assert_eq!(found.runtime, Path::new("/run/user/7/thalweg"));
    }

    #[test]
    fn the_state_directory_can_be_named_by_variable_and_by_flag() {
        let found = paths(&[("HOME", "/h"), ("THALWEG_STATE_DIR", "/s")]).unwrap();
        assert_eq!(found.state, Path::new("/s"));
        let found = found.with_state(Some("/flag".into()));
        assert_eq!((found.state.as_path(), found.runtime.as_path()), (Path::new("/flag"), Path::new("/flag/run")));
        assert_eq!(found.clone().with_state(None), found);
    }

    #[test]
    fn directories_are_made_private_and_hold_one_identity() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        let found = paths(&[("HOME", "/h")]).unwrap().with_state(Some(state.clone()));
        let pin = found.identity().unwrap().pin();
        assert_eq!(found.identity().unwrap().pin(), pin);
        for made in [&state, &dir.path().join("a")] {
            assert_eq!(std::fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
        }
    }
}
