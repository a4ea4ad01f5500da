//! `cp -r` of coreutils: one thread, no digest, no publication by rename.

use std::path::Path;
use std::process::Command;

use super::{Bed, Class, Guards, Set, Tool, version_of};
use crate::error::Result;

pub struct Copy;

impl Tool for Copy {
    fn name(&self) -> &str {
        "cp"
    }

    fn class(&self) -> Class {
        Class::Local
    }

    fn protection(&self) -> &str {
        "no digest; final names at once"
    }

    fn guards(&self) -> Guards {
        Guards::default()
    }

    fn steps(&self) -> Vec<&str> {
        Vec::new()
    }

    fn version(&self) -> Result<String> {
        version_of(Path::new("cp"), "--version", "coreutils")
    }

    fn client(&self, _bed: &Bed, set: &Set, delivery: &Path) -> Command {
        let mut command = Command::new("cp");
        // The dot copies the content of the directory; without it cp would make a directory inside.
        command.arg("-r").arg(set.source.join(".")).arg(delivery);
        command
    }
}
