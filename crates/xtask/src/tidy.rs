//! `tidy`: runs every rule over the tree, lists what breaks one, and prints the sizes.

use anyhow::Result;

use crate::workspace::{Violation, Workspace};
use crate::{circles, documents, faults, layering, sizes, words};

/// A rule's name, and the function that finds its violations.
type Rule = (&'static str, fn(&Workspace) -> Vec<Violation>);

pub const RULES: &[Rule] = &[
    ("dependency arrows", layering::arrows),
    ("tools are optional", layering::tools_are_optional),
    ("external absences", layering::external_absences),
    ("mention absences", layering::mention_absences),
    ("product mention absences", layering::product_mention_absences),
    ("printing", layering::printing),
    ("unsafe code", layering::unsafe_code),
    ("threads", layering::threads),
    ("circles of files", circles::files),
    ("words in code", words::code),
    ("words in text", words::text),
    ("machine paths", words::machine_paths),
    ("registry hosts", words::registry_hosts),
    ("module names", words::module_names),
    ("openings", words::openings),
    ("function length", sizes::functions),
    ("file length", sizes::files),
    ("blobs", sizes::blobs),
    ("documents", documents::are_present),
    ("pages", documents::pages_exist),
    ("map of crates", documents::map_names_every_crate),
    ("root", documents::root_has_only_what_it_should),
    ("entry of ci", documents::entry_is_executable),
    ("faults", faults::are_held_by_what_there_is),
    ("findings", faults::findings_are_held),
];

/// Prints the outcome and says whether the tree is clean.
pub fn run() -> Result<bool> {
    let workspace = Workspace::read()?;
    let found = broken_rules(&workspace);
    for line in &found {
        println!("{line}");
    }
    println!("{}", sizes::report(&workspace));
    println!("tidy: {} rules, {} files, {} violations", RULES.len(), workspace.files.len(), found.len());
    Ok(found.is_empty())
}

/// One line for each violation, with the name of its rule.
pub fn broken_rules(workspace: &Workspace) -> Vec<String> {
    let found = RULES.iter().flat_map(|(name, rule)| rule(workspace).into_iter().map(move |v| format!("{v} [{name}]")));
    found.collect()
}
