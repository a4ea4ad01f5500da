//! The files that build a scenario on machines of their own.

use super::{host, latency, readme};
use crate::scenario::Scenario;

impl Scenario {
    /// Files that build this scenario on machines of their own: relative name and content.
    pub fn emit(&self) -> Vec<(String, String)> {
        let mut files = vec![("README.txt".to_owned(), readme::write(self))];
        for site in 0..self.sites.len() {
            let name = &self.sites[site].name;
            files.push((format!("host-{name}.sh"), host::set_up(self, site)));
            files.push((format!("host-{name}-undo.sh"), host::undo(self, site)));
        }
        for link in 0..self.links.len() {
            for end in [0, 1] {
                let name = latency::name(self, link, end);
                files.push((format!("{name}.sh"), latency::set_up(self, link, end)));
                files.push((format!("{name}-undo.sh"), latency::undo(self, link, end)));
                if !self.links[link].timeline.is_empty() {
                    files.push((format!("{name}-timeline.sh"), latency::timeline(self, link, end)));
                }
            }
        }
        files
    }
}
