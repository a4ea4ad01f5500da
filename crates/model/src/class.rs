//! How much a job counts beside others where they share what there is: `high`, `normal` or `low`.
//!
//! Invariant: the weights are those of every place that shares something out: rates, slots, buffers.

/// Ordered by what it is given.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
#[repr(u32)]
pub enum Class {
    Low = 1,
    #[default]
    Normal = 2,
    High = 3,
}

impl Class {
    pub const ALL: [Class; 3] = [Class::Low, Class::Normal, Class::High];

    /// Of what is shared among classes that all want more, each gets its weight's part.
    pub fn weight(self) -> u32 {
        match self {
            Class::High => 16,
            Class::Normal => 4,
            Class::Low => 1,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Class::High => "high",
            Class::Normal => "normal",
            Class::Low => "low",
        }
    }

    /// By the protocol's number, which is the value.
    pub fn from_number(number: u32) -> Option<Class> {
        Class::ALL.into_iter().find(|class| *class as u32 == number)
    }
}

impl std::str::FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Class, String> {
        let found = Class::ALL.into_iter().find(|class| class.name() == text);
        found.ok_or_else(|| format!("{text:?} is not one of high, normal, low"))
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_as_they_are_written_and_the_higher_weighs_more() {
        for class in Class::ALL {
            assert_eq!((class.name().parse(), Class::from_number(class as u32)), (Ok(class), Some(class)));
        }
        assert!(Class::ALL.is_sorted_by_key(|class| class.weight()) && Class::ALL.is_sorted());
        assert!("HIGH".parse::<Class>().is_err() && Class::from_number(0).is_none());
    }
}
