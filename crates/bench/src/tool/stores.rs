//! Races against the server of a store: each file of `stores/` describes one server, and the clients that move the same sets to
//! it and from it, ours among them.
//!
//! Invariants: every client has a server of its own, started alike, so that its processor time can be told; all servers have the
//! same root. What is fetched was put there before the clock by the first tool of the race.

use serde::Deserialize;

use super::adapter::{Adapter, ServerPart, Setup};
use super::{Tool, Variant};
use crate::error::{Error, Result};

/// By name, for `--store`.
pub const STORES: [(&str, &str); 4] = [
    ("s3", include_str!("stores/s3.toml")),
    ("dav", include_str!("stores/dav.toml")),
    ("sftp", include_str!("stores/sftp.toml")),
    ("gsiftp", include_str!("stores/gsiftp.toml")),
];
/// What the commands of our own program begin with in a file.
const OURS: &str = "thalweg";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreFile {
    /// Of the first server; the others have those behind it.
    port: u16,
    steps: Vec<String>,
    setup: Vec<Setup>,
    server: ServerPart,
    tool: Vec<Adapter>,
}

/// Our program in each of its variants, and those of the named rivals that know the store; all of them if none is named.
pub fn at_store(name: &str, variants: &[Variant], rivals: &[String]) -> Result<Vec<Box<dyn Tool>>> {
    let found = STORES.iter().find(|(known, _)| *known == name);
    let names: Vec<_> = STORES.iter().map(|(name, _)| *name).collect();
    let (_, text) =
        found.ok_or_else(|| Error::usage(format!("store {name:?}"), format!("known are {}", names.join(", "))))?;
    let file: StoreFile = toml::from_str(text).map_err(|error| Error::usage(name, error.message().to_owned()))?;
    let (ours, others): (Vec<Adapter>, Vec<Adapter>) = file.tool.into_iter().partition(|tool| tool.name == OURS);
    let known: Vec<String> = others.iter().map(|tool| tool.name.clone()).collect();
    if let Some(unknown) = rivals.iter().find(|rival| !known.contains(rival)) {
        return Err(Error::usage(
            format!("rival {unknown:?}"),
            format!("of store {name} are known {}", known.join(", ")),
        ));
    }
    let ours = ours.iter().flat_map(|tool| variants.iter().map(move |variant| of_variant(tool, variant)));
    let others = others.iter().filter(|tool| rivals.is_empty() || rivals.contains(&tool.name)).cloned();
    let mut tools: Vec<Box<dyn Tool>> = Vec::new();
    for (index, mut tool) in ours.chain(others).enumerate() {
        // Some clients know one port only.
        tool.port.get_or_insert(file.port + index as u16);
        tool.server = Some(file.server.clone());
        tool.setup = file.setup.iter().chain(&tool.setup).cloned().collect();
        tool.steps.extend(file.steps.iter().cloned());
        tool.check().map_err(|cause| Error::usage(format!("{name}: {}", tool.name), cause))?;
        tools.push(Box::new(tool));
    }
    Ok(tools)
}

fn of_variant(tool: &Adapter, variant: &Variant) -> Adapter {
    let mut ours = tool.clone();
    let program = variant.program.to_string_lossy().into_owned();
    ours.version[0] = program.clone();
    for words in [Some(&mut ours.client.command), ours.client.fetch.as_mut()].into_iter().flatten() {
        words[0] = program.clone();
        words.splice(2..2, variant.cp_args.iter().map(|word| word.to_string_lossy().into_owned()));
    }
    ours.name = variant.label.clone();
    ours.is_ours = true;
    ours
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    #[test]
    fn every_store_is_described_with_our_program_and_with_rivals_that_can_be_named() {
        let variants = [Variant::new("/somewhere/thalweg")];
        for (name, _) in STORES {
            let all = at_store(name, &variants, &[]).unwrap();
            assert!(all.len() >= 3 && all[0].is_ours() && !all[1].is_ours(), "{name}");
            let starts_ours = |program: &str| all[0].starts_ours(program.as_ref());
            assert!(starts_ours("/somewhere/thalweg") && !starts_ours("versitygw"), "{name}");
            let rival = all[1].name().to_owned();
            let one = at_store(name, &variants, std::slice::from_ref(&rival)).unwrap();
            assert_eq!(one.iter().map(|tool| tool.name()).collect::<Vec<_>>(), ["thalweg", &rival]);
            assert!(at_store(name, &variants, &["scp".into()]).err().unwrap().chain().contains(&rival));
        }
        assert!(at_store("gs", &variants, &[]).err().unwrap().chain().contains("s3, dav, sftp, gsiftp"));
    }

    /// Version 1 knows nothing of the setting that chooses the client, and takes it all the same.
    #[test]
    fn no_aws_cli_but_version_2_is_raced() {
        let file: StoreFile = toml::from_str(STORES[0].1).unwrap();
        let words = file.tool.into_iter().find(|tool| tool.name == "aws-cli").unwrap().version;
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("aws");
        for (said, is_raced) in [("aws-cli/2.9.19 Python/3.11.2", true), ("aws-cli/1.45.11 Python/3.11.7", false)] {
            std::fs::write(&program, format!("#!/bin/sh\necho {said}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            let path = format!("{}:/usr/bin:/bin", dir.path().display());
            let output = Command::new(&words[0]).args(&words[1..]).env("PATH", path).output().unwrap();
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.success(), is_raced, "{told}");
            // By that a race tells what is missing, and how to get it.
            assert!(told.contains(said) && told.contains("unable to access") != is_raced, "{told}");
        }
    }
}
