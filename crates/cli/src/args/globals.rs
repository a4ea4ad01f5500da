//! What every command takes.

use std::path::PathBuf;

/// What every command takes.
#[derive(clap::Args, Debug)]
pub struct Globals {
    /// Read this configuration file instead of the user's and the system's
    #[arg(long, value_name = "FILE", global = true, help_heading = "Configuration", env = "THALWEG_CONFIG")]
    pub config: Option<PathBuf>,
    /// Use the settings of [profiles.NAME] in the configuration file
    #[arg(long, value_name = "NAME", global = true, help_heading = "Configuration", env = "THALWEG_PROFILE")]
    pub profile: Option<String>,
}
