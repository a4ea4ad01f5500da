//! Deliberate bugs, one of which a test-only build can switch on (`docs/reliability.md`, "The museum").
//!
//! Without the feature `mutants`, which no product has, `is_on` is false at compile time and nothing of a mutant is left
//! in the program. With it, the environment variable `THALWEG_MUTANT` names the one that is on.

/// Whether the bug of this name is on.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is_on(_name: &str) -> bool {
    false
}

/// Whether the bug of this name is on.
#[cfg(feature = "mutants")]
pub fn is_on(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("THALWEG_MUTANT").ok()).as_deref() == Some(name)
}
