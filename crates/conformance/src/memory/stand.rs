//! The store in memory as the suite sees it.

use super::{Flaw, Memory, Order, Rules};
use crate::{Ability, Place, Stand};
use model::Name;
use std::sync::Arc;
use store::{How, Result, Shelf, Sink, Source};

/// A store in memory by some rules, and with one flaw or none.
#[derive(Default)]
pub struct MemoryStand {
    rules: Rules,
    flaw: Option<Flaw>,
    lacks: Vec<Ability>,
}

impl MemoryStand {
    pub fn new(rules: Rules, flaw: Option<Flaw>) -> MemoryStand {
        let order = if rules.order == Order::Any { Ability::InOrder } else { Ability::AnyOrder };
        let mut lacks = vec![order, Ability::ReadsOnce];
        if !rules.is_conditional {
            lacks.push(Ability::Conditional);
        }
        MemoryStand { rules, flaw, lacks }
    }
}

impl Stand for MemoryStand {
    fn name(&self) -> String {
        match self.flaw {
            Some(flaw) => format!("memory that {flaw:?}"),
            None => format!("memory ({:?})", self.rules),
        }
    }

    fn lacks(&self) -> &[Ability] {
        &self.lacks
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(Memory::with_flaw(self.rules, self.flaw))
    }
}

impl Place for Memory {
    fn sink(&self) -> Option<Arc<dyn Sink>> {
        Some(Memory::sink(self))
    }

    fn source(&self) -> Option<Arc<dyn Source>> {
        Some(Memory::source(self))
    }

    fn shelf(&self, path: &[u8], how: How) -> Result<Box<dyn Shelf>> {
        Memory::shelf(self, path, how)
    }

    fn put(&self, name: &Name, content: &[u8]) {
        Memory::put(self, std::str::from_utf8(name.as_bytes()).expect("checks put plain names"), content);
    }

    fn remove(&self, name: &Name) {
        Memory::remove(self, name);
    }

    fn left(&self) -> Vec<String> {
        Memory::left(self)
    }
}
