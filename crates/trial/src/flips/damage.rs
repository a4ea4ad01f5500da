//! The sets that are moved, and the checker, which reads what was delivered without the product's code.

use crate::random::Random;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::Source;
use store::posix::PosixSource;

/// A tree whose content is known.
pub struct Set {
    pub path: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
}

/// How what was delivered differs from the set.
#[derive(Default, Debug)]
pub struct Found {
    pub equal: u64,
    pub wrong: u64,
    pub missing: u64,
    pub strange: u64,
}

impl Found {
    pub fn is_whole(&self) -> bool {
        self.wrong + self.missing + self.strange == 0
    }
}

impl Set {
    /// A thousand packed files, a few of one chunk and one of several.
    pub fn many_small(path: &Path) -> Result<Set> {
        let mut sizes: Vec<usize> = (0..1000).map(|number| 1 + number * 3).collect();
        sizes.extend([150_000, 200_001, 262_144, (2 << 20) + 77]);
        Set::make(path, &sizes, 0)
    }

    /// A file of six chunks.
    pub fn one_large(path: &Path) -> Result<Set> {
        Set::make(path, &[(6 << 20) - 1000], 0)
    }

    /// Another version of it: the same name and size, other bytes.
    pub fn another_large(path: &Path) -> Result<Set> {
        Set::make(path, &[(6 << 20) - 1000], 1_000)
    }

    fn make(path: &Path, sizes: &[usize], first_seed: u64) -> Result<Set> {
        std::fs::create_dir(path).with_context(|| format!("make {}", path.display()))?;
        let mut files = BTreeMap::new();
        for (number, size) in sizes.iter().enumerate() {
            let mut random = Random::new(first_seed + number as u64);
            let content: Vec<u8> =
                (0..size.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(*size).collect();
            let name = format!("f{number:04}");
            std::fs::write(path.join(&name), &content).with_context(|| format!("write {name}"))?;
            files.insert(name, content);
        }
        Ok(Set { path: path.to_owned(), files })
    }

    pub fn source(&self) -> Result<Arc<dyn Source>> {
        let mut source = PosixSource::new();
        source.add_local(&[self.path.as_os_str().as_encoded_bytes(), b"/"].concat())?;
        Ok(Arc::new(source))
    }

    /// Compares every byte below `path` with what it should be, by the standard library only.
    pub fn compare(&self, path: &Path) -> Result<Found> {
        let mut found = Found::default();
        for (name, content) in &self.files {
            match std::fs::read(path.join(name)) {
                Ok(there) if there == *content => found.equal += 1,
                Ok(_) => found.wrong += 1,
                Err(_) => found.missing += 1,
            }
        }
        for entry in std::fs::read_dir(path)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let is_staging = name.starts_with(".thalweg-staging-");
            found.strange += u64::from(!is_staging && !self.files.contains_key(&name));
        }
        Ok(found)
    }
}
