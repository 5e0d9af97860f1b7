//! Generates the ids of this crate. They are random; with the feature `simulation` a thread may derive them from a
//! seed, so that a run can be reproduced.
//!
//! All randomness of the engine comes from here, so that a seed determines the whole course of a simulation.

/// A fresh id: a time, followed by random bits.
#[cfg(not(feature = "simulation"))]
pub(crate) fn now_v7() -> uuid::Uuid {
    uuid::Uuid::now_v7()
}

#[cfg(feature = "simulation")]
pub(crate) use seeded::{now_v7, seed};

#[cfg(feature = "simulation")]
mod seeded {
    use std::cell::Cell;

    use uuid::{Builder, Uuid};

    /// The namespace of ids that are derived from a seed.
    const NAMESPACE: Uuid = Uuid::from_u128(0x0b8d_6f6e_53a1_4d0c_9a57_64c2_1d1c_71e5);

    /// The time in the first of them: 2026-01-01.
    const MILLIS: u64 = 1_767_225_600_000;

    thread_local! {
        /// The seed of this thread, and how many ids it has drawn.
        static SEED: Cell<Option<(Uuid, u64)>> = const { Cell::new(None) };
    }

    /// From now on this thread derives its ids from this seed; `None` makes them random again.
    pub(crate) fn seed(seed: Option<u64>) {
        SEED.set(seed.map(|seed| (Uuid::new_v5(&NAMESPACE, &seed.to_be_bytes()), 0)));
    }

    pub(crate) fn now_v7() -> Uuid {
        let Some((seed, count)) = SEED.get() else {
            return Uuid::now_v7();
        };
        SEED.set(Some((seed, count + 1)));
        let drawn = Uuid::new_v5(&seed, &count.to_be_bytes());
        let mut chance = [0; 10];
        chance.copy_from_slice(&drawn.as_bytes()[6..]);
        Builder::from_unix_timestamp_millis(MILLIS + count, &chance).into_uuid()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn same_seed_gives_the_same_ids() {
            let draw = |from| {
                seed(from);
                [now_v7(), now_v7()]
            };
            assert_eq!(draw(Some(1)), draw(Some(1)));
            assert_ne!(draw(Some(1)), draw(Some(2)));
            assert_ne!(draw(None), draw(None));
            assert_eq!(draw(Some(3))[0].get_version_num(), 7);
        }
    }
}
