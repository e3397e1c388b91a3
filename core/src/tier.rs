//! The three documented tiers of a tool, ordered by how much protection they ask for.

use crate::names::named_enum;

named_enum! {
    /// How dangerous a tool is. The order is meant: the effective tier of a name is the highest.
    pub enum Tier {
        /// Reads or idempotent look-ups: runs freely, leaves no row.
        Safe => "safe",
        /// Has a registered compensation: journalled, undone on failure.
        Compensable => "compensable",
        /// Cannot be undone: a human decides before it runs.
        Irreversible => "irreversible",
    }
}

impl Tier {
    /// Whether a call of this tier leaves a row in the journal.
    #[must_use]
    pub const fn is_journalled(self) -> bool {
        !matches!(self, Self::Safe)
    }

    /// Whether a human decides before a call of this tier runs.
    #[must_use]
    pub const fn requires_approval(self) -> bool {
        matches!(self, Self::Irreversible)
    }
}

#[cfg(test)]
mod tests {
    use super::Tier;

    #[test]
    fn tiers_are_ordered_by_the_protection_they_ask_for() {
        assert!(Tier::Safe < Tier::Compensable && Tier::Compensable < Tier::Irreversible);
        assert_eq!("compensable".parse(), Ok(Tier::Compensable));
        assert!("Compensable".parse::<Tier>().is_err());
        assert!(!Tier::Safe.is_journalled() && Tier::Irreversible.requires_approval());
    }
}
