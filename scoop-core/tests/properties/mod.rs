//! Property tests on random scripts. A counterexample is printed as a script with its record, which can be added to the
//! golden scripts.

mod contexts;
mod deadlines;
mod failures;
mod fuzz;
mod invariants;
mod topology;
mod values;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::driver::{Memory, World, parse, recorded};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 192,
        failure_persistence: None,
        max_shrink_iters: 4096,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_sagas_keep_the_invariants(text in topology::script()) {
        let script = parse(&text).map_err(TestCaseError::fail)?;
        let world = World::play(&script, Memory::Kept);
        let record = recorded(&world);
        invariants::check(&script, &world)
            .map_err(|why| TestCaseError::fail(format!("{why}\n\n{text}---\n{record}")))?;
        crate::judge(&script, &world)
            .map_err(|why| TestCaseError::fail(format!("{why}\n\n{text}---\n{record}")))?;
        let without_memory = recorded(&World::play(&script, Memory::Lost));
        prop_assert!(
            record == without_memory,
            "an engine without memory between moves records other rows\n\n{text}---\n{record}\nand\n{without_memory}"
        );
    }
}
