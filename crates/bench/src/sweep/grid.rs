//! The exhaustive grid of our own settings, each a variant that races like a tool.

use std::ffi::OsString;

use crate::error::{Error, Result};
use crate::tool::Variant;

/// More servers than this at once are another experiment.
const VARIANTS_MAX: usize = 64;

/// The defaults, then every combination of the axes, each written `KEY=VALUE,VALUE`. `chunk` is short for `chunk-size`;
/// other keys are flags of our `cp`.
pub fn variants(base: &Variant, axes: &[String]) -> Result<Vec<Variant>> {
    let mut combinations: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for axis in axes {
        let Some((key, values)) = axis.split_once('=').filter(|(key, values)| !key.is_empty() && !values.is_empty())
        else {
            return Err(Error::usage(format!("grid {axis:?}"), "write KEY=VALUE,VALUE, such as streams=1,4,16"));
        };
        let values: Vec<&str> = values.split(',').map(str::trim).collect();
        if combinations.len() * values.len() > VARIANTS_MAX {
            return Err(Error::usage(
                format!("a grid of more than {VARIANTS_MAX} settings"),
                "leave out values, or make two sweeps",
            ));
        }
        let with = |before: &Vec<(String, String)>, value: &str| {
            let mut settings = before.clone();
            settings.push((key.to_owned(), value.to_owned()));
            settings
        };
        combinations = combinations.iter().flat_map(|before| values.iter().map(|value| with(before, value))).collect();
    }
    let mut variants = vec![base.clone()];
    variants.extend(combinations.into_iter().filter(|settings| !settings.is_empty()).map(|settings| {
        let words: Vec<String> = settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let mut variant = Variant { label: format!("{} {}", base.label, words.join(" ")), ..base.clone() };
        variant.cp_args.extend(settings.iter().map(|(key, value)| {
            let flag = if key == "chunk" { "chunk-size" } else { key };
            OsString::from(format!("--{flag}={value}"))
        }));
        variant
    }));
    Ok(variants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_is_the_defaults_and_every_combination() {
        let base = Variant::new("thalweg");
        let grid = variants(&base, &["streams=1,4".into(), "chunk=1MiB,8MiB".into()]).unwrap();
        let labels: Vec<_> = grid.iter().map(|variant| variant.label.as_str()).collect();
        assert_eq!(labels.len(), 5);
        assert_eq!((labels[0], labels[4]), ("thalweg", "thalweg streams=4 chunk=8MiB"));
        assert_eq!(grid[4].cp_args, ["--streams=4", "--chunk-size=8MiB"].map(OsString::from));
        assert_eq!(variants(&base, &[]).unwrap().len(), 1);
        assert!(variants(&base, &["streams".into()]).is_err());
        let many = vec![format!("streams={}", vec!["1"; 65].join(","))];
        assert!(variants(&base, &many).is_err());
    }
}
