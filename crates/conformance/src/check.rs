//! A check, what came of it, and the report on a store.

use crate::{Ability, Place, Stand, checks as all};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a store failed a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault(String);

impl Fault {
    pub fn new(text: impl Into<String>) -> Fault {
        Fault(text.into())
    }
}

impl From<store::Error> for Fault {
    fn from(error: store::Error) -> Fault {
        Fault(format!("an unexpected error: {error}"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Fails the check unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::Fault::new(format!($($text)+)));
        }
    };
}
pub(crate) use ensure;

pub struct Check {
    pub name: &'static str,
    /// One line, of what a store does that passes.
    pub says: &'static str,
    /// Without one of these it does not apply.
    pub takes: &'static [Ability],
    pub(crate) run: fn(&dyn Place) -> Result<(), Fault>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Passed,
    Failed(String),
    /// The store lacks this.
    NotApplicable(Ability),
}

pub struct Report {
    pub store: String,
    pub verdicts: Vec<(&'static Check, Verdict)>,
}

/// All checks, in the order in which they are run.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    all::GROUPS.iter().flat_map(|(_, checks)| checks.iter())
}

/// The list of all checks, as a page of the manual has it.
pub fn list() -> String {
    let mut text = String::new();
    for (group, checks) in all::GROUPS {
        text += &format!(
            "\n## {group}\n\n| check | what a store does that passes | does not apply where |\n|---|---|---|\n"
        );
        for check in *checks {
            let lacking: Vec<_> = check.takes.iter().map(|ability| ability.lacking()).collect();
            text += &format!("| `{}` | {} | {} |\n", check.name, check.says, lacking.join("; "));
        }
    }
    text
}

/// Runs every check that applies, each in a place of its own.
pub fn run(stand: &dyn Stand) -> Report {
    let verdicts = checks().map(|check| (check, judge(stand, check))).collect();
    Report { store: stand.name(), verdicts }
}

/// Runs one check, if it applies.
pub fn judge(stand: &dyn Stand, check: &Check) -> Verdict {
    if let Some(lacking) = check.takes.iter().find(|ability| stand.lacks().contains(ability)) {
        let claims = stand.place().sink().and_then(|sink| lacking.is_in(&sink.facts().ok()?.can));
        return match claims {
            Some(true) => Verdict::Failed(format!("its facts say that it can, and its stand that {lacking}")),
            _ => Verdict::NotApplicable(*lacking),
        };
    }
    match catch_unwind(AssertUnwindSafe(|| (check.run)(&*stand.place()))) {
        Ok(Ok(())) => Verdict::Passed,
        Ok(Err(fault)) => Verdict::Failed(fault.0),
        Err(_) => Verdict::Failed("it panicked".to_owned()),
    }
}

impl Report {
    /// What came of the check of this name.
    ///
    /// # Panics
    /// When there is none.
    pub fn verdict(&self, name: &str) -> &Verdict {
        let found = self.verdicts.iter().find(|(check, _)| check.name == name);
        &found.unwrap_or_else(|| panic!("there is no check {name}")).1
    }

    pub fn failed(&self) -> Vec<&'static str> {
        let failed = self.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Failed(_)));
        failed.map(|(check, _)| check.name).collect()
    }

    pub fn passed(&self) -> usize {
        self.verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Passed).count()
    }

    pub fn not_applicable(&self) -> Vec<&'static str> {
        let passed_over = self.verdicts.iter().filter(|(_, verdict)| matches!(verdict, Verdict::NotApplicable(_)));
        passed_over.map(|(check, _)| check.name).collect()
    }

    /// # Panics
    /// With the whole report, when a check failed.
    pub fn assert_conforms(&self) {
        assert!(self.failed().is_empty(), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (check, verdict) in &self.verdicts {
            match verdict {
                Verdict::Passed => writeln!(f, "passed          {}", check.name)?,
                Verdict::Failed(why) => writeln!(f, "FAILED          {}: {why}", check.name)?,
                Verdict::NotApplicable(lacking) => writeln!(f, "not applicable  {}: {lacking}", check.name)?,
            }
        }
        let (failed, passed_over) = (self.failed().len(), self.not_applicable().len());
        write!(f, "{}: {} passed, {failed} failed, {passed_over} not applicable", self.store, self.passed())
    }
}
