//! What the hub tells Prometheus of its queue.
//!
//! Invariants: labels are words of this program, and names of endpoints, which administrators chose; jobs are counted at most once in
//! `KEPT`, however often somebody asks.
//!
//! Not here: the count (`figures`), the format and who asks (`daemon::metrics`), requests (`api`).

use crate::figures::Figures;
use crate::hub::Hub;
use crate::{Result, unix_ms};
use daemon::metrics::Page;
use model::Class;
use queue::{Reason, Status};
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::Duration;

/// How old a count may be.
const KEPT: Duration = Duration::from_secs(1);

impl Hub {
    /// Writes what is known now.
    pub fn tell_metrics(&self, page: &mut Page) -> Result<()> {
        let figures = self.figures()?;
        let mut created = BTreeMap::new();
        for (class, (_, id)) in &figures.oldest {
            created.extend(self.inner.reader.created(*id)?.map(|created| (*class, created)));
        }
        page.begin("thalweg_hub_jobs", "gauge", "Open jobs, by status and class.");
        for status in Status::ALL.iter().filter(|status| !status.is_end()) {
            for class in Class::ALL {
                let jobs = figures.jobs.get(&(*status, class)).copied().unwrap_or_default();
                page.row(&[("status", status.word()), ("class", class.name())], jobs as f64);
            }
        }
        page.begin("thalweg_hub_waiting_jobs", "gauge", "Jobs that wait, by what they wait for.");
        for reason in Reason::ALL.iter().filter(|reason| !matches!(reason, Reason::None | Reason::Slot)) {
            let jobs = figures.waiting.get(reason).copied().unwrap_or_default();
            page.row(&[("reason", reason.word())], jobs as f64);
        }
        page.begin(
            "thalweg_hub_queue_oldest_seconds",
            "gauge",
            "Age of the oldest queued job, by class; 0 without one.",
        );
        for class in Class::ALL {
            let age = created.get(&class).map_or(0.0, |created| (unix_ms() - *created).max(0) as f64 / 1000.0);
            page.row(&[("class", class.name())], age);
        }
        tell_ended(page, &figures);
        let (_, rate, _) = self.inner.samples.total().last().copied().unwrap_or_default();
        page.begin("thalweg_hub_rate_bytes_per_second", "gauge", "What all jobs that run move.");
        page.row(&[], rate as f64);
        page.begin("thalweg_hub_endpoint_up", "gauge", "Whether an endpoint answers, once a job has needed it.");
        for (name, is_up) in &figures.endpoints {
            page.row(&[("endpoint", name)], f64::from(u8::from(*is_up)));
        }
        page.begin("thalweg_hub_endpoints_unnamed", "gauge", "Endpoints beyond those that are named.");
        page.row(&[], figures.endpoints_unnamed as f64);
        Ok(())
    }

    fn figures(&self) -> Result<Figures> {
        let mut kept = self.inner.figures.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(figures) if figures.at.elapsed() < KEPT => Ok(figures.clone()),
            _ => {
                let figures = self.look(|owner| Figures::count(&owner.queue, &owner.ended))?;
                *kept = Some(figures.clone());
                Ok(figures)
            }
        }
    }
}

fn tell_ended(page: &mut Page, figures: &Figures) {
    let ends = || {
        let ends = Status::ALL.iter().filter(|status| status.is_end());
        ends.map(|status| (status.word(), figures.ended.get(status).copied().unwrap_or_default()))
    };
    page.begin("thalweg_hub_jobs_ended_total", "counter", "Jobs that ended since the hub started, by how.");
    ends().for_each(|(status, ended)| page.row(&[("status", status)], ended.jobs as f64));
    page.begin("thalweg_hub_files_total", "counter", "Files that the last attempts of those jobs moved.");
    ends().for_each(|(status, ended)| page.row(&[("status", status)], ended.files as f64));
    page.begin("thalweg_hub_transfer_bytes_total", "counter", "Content that the last attempts of those jobs moved.");
    ends().for_each(|(status, ended)| page.row(&[("status", status)], ended.bytes as f64));
}
