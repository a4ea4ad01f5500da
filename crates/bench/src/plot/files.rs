//! A plot as the files it is written to.

use std::fs;
use std::path::Path;

use super::{Plot, gnuplot, svg};
use crate::error::{Error, Result};

impl Plot {
    /// The drawing, readable on its own: light or dark as the viewer prefers, on paper light.
    pub fn svg(&self) -> String {
        svg::draw(self)
    }

    /// A script, and the data it reads from the file `NAME.dat` beside it. It writes `NAME.gnuplot.svg`.
    pub fn gnuplot(&self) -> (String, String) {
        gnuplot::write(self)
    }

    /// Writes `NAME.svg`, `NAME.gp` and `NAME.dat`, replacing earlier ones; makes the directory if needed.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || self.name.starts_with('.') || !self.name.chars().all(is_plain) {
            return Err(Error::usage(format!("plot name {:?}", self.name), "use letters, digits, `-`, `_` and `.`"));
        }
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        let (script, data) = self.gnuplot();
        for (suffix, text) in [("svg", self.svg()), ("gp", script), ("dat", data)] {
            let path = dir.join(format!("{}.{suffix}", self.name));
            fs::write(&path, text).map_err(Error::io("write", &path))?;
        }
        Ok(())
    }
}
