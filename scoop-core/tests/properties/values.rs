//! Properties of single values: lineages, and the names of sagas, steps, topics and a rollback's parts.

use std::collections::BTreeSet;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use scoop_core::{
    Definition, Instance, Lineage, NAME_CHARS_MAX, NameError, Plan, RollbackNames, STEP_NAME_CHARS_MAX,
    StepDefinition, TOPIC_BYTES_MAX,
};
use uuid::Uuid;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lineage_is_its_parents_and_one_id(ids in vec(any::<u128>().prop_map(Uuid::from_u128), 1..6)) {
        let lineage = Lineage::from_ids(ids.clone()).expect("ids");
        prop_assert_eq!(lineage.ids(), &ids);
        prop_assert_eq!((lineage.root_id(), lineage.id()), (ids[0], ids[ids.len() - 1]));
        let rebuilt = ids[1..].iter().fold(Lineage::root(ids[0]), |above, id| {
            let below = above.child(*id);
            assert_eq!(below.parent(), Some(above));
            below
        });
        prop_assert_eq!(&rebuilt, &lineage);
        let mut above = lineage.parent();
        let mut levels = 1;
        while let Some(ancestor) = above {
            prop_assert!(lineage.ids().starts_with(ancestor.ids()));
            prop_assert!(ancestor < lineage);
            above = ancestor.parent();
            levels += 1;
        }
        prop_assert_eq!(levels, ids.len());
        let text: Vec<_> = ids.iter().map(Uuid::to_string).collect();
        prop_assert_eq!(lineage.to_string(), text.join("."));
    }

    #[test]
    fn parts_of_a_rollback_have_unique_names(
        names in btree_set(step_name(), 1..5),
        executed in vec((any::<prop::sample::Index>(), 0u32..3), 0..8),
    ) {
        let names: Vec<_> = names.into_iter().collect();
        let definition = Definition {
            saga: "saga".into(),
            topic: "topic".into(),
            steps: names.iter().map(|name| named(name)).collect(),
        };
        let mut history = vec![];
        for (step, handled) in &executed {
            let step = step.get(&names);
            history.push(instance(step, None));
            history.extend((0..*handled).map(|iteration| instance(step, Some(iteration))));
        }
        let suspensions = history.len();
        let rollback = RollbackNames::of(&definition);
        let plan = Plan::of(&rollback, history);
        prop_assert_eq!(plan.parts().len(), suspensions + executed.len());
        let parts: BTreeSet<_> = plan.parts().iter().map(|part| part.name.as_str()).collect();
        prop_assert_eq!(parts.len(), plan.parts().len(), "{:?}", plan.parts());
        prop_assert!(parts.iter().all(|part| rollback.matches(part)));
        prop_assert!(!names.iter().any(|step| rollback.matches(step)));
        prop_assert!(plan.parts().is_sorted_by(|a, b| (b.instance, b.of_children) < (a.instance, a.of_children)));
    }

    /// Names within the limits of the database are accepted, and all violations are reported.
    #[test]
    fn names_that_cannot_be_stored_are_refused(
        saga in name(NAME_CHARS_MAX),
        topic in name(TOPIC_BYTES_MAX),
        steps in vec(name(STEP_NAME_CHARS_MAX), 0..4),
    ) {
        let definition = Definition {
            saga: saga.clone().into(),
            topic: topic.clone().into(),
            steps: steps.iter().map(|name| named(name)).collect(),
        };
        let saga = || saga.clone();
        let fits = |length, limit| (1..=limit).contains(&length);
        let mut expected = vec![];
        let chars = saga().chars().count();
        expected.extend((!fits(chars, NAME_CHARS_MAX)).then(|| NameError::Saga { saga: saga(), chars }));
        let bytes = topic.len();
        let topic_error = || NameError::Topic { saga: saga(), topic: topic.clone(), bytes };
        expected.extend((!fits(bytes, TOPIC_BYTES_MAX)).then(topic_error));
        expected.extend(steps.is_empty().then(|| NameError::NoStep { saga: saga() }));
        for (index, step) in steps.iter().enumerate() {
            let (step_of, chars) = (|| step.clone(), step.chars().count());
            let long = || NameError::Step { saga: saga(), step: step_of(), chars };
            expected.extend((!fits(chars, STEP_NAME_CHARS_MAX)).then(long));
            let repeated = || NameError::RepeatedStep { saga: saga(), step: step_of() };
            expected.extend(steps[..index].contains(step).then(repeated));
        }
        let texts = [saga(), topic.clone()].into_iter().chain(steps.iter().cloned());
        let texts = texts.filter(|text| text.contains('\0'));
        expected.extend(texts.map(|text| NameError::Nul { saga: saga(), text }));
        let found = definition.check().err().unwrap_or_default();
        prop_assert_eq!(&found, &expected);
        prop_assert!(found.iter().all(|error| error.to_string().starts_with("saga `")));
        for (index, step) in steps.iter().enumerate() {
            let first = steps.iter().position(|other| other == step);
            prop_assert!(definition.step_index(step) == first && first <= Some(index));
        }
    }
}

/// A name with a length around the limit, of letters with one or two bytes.
fn name(limit: usize) -> impl Strategy<Value = String> {
    let short = prop::sample::select(["", "a", "b", "x\0", "ä"].to_vec()).prop_map(str::to_owned);
    let letter = prop::sample::select(["a", "ä"].to_vec());
    let long = (letter, limit / 2 - 1..=limit + 1).prop_map(|(letter, count)| letter.repeat(count));
    let edge = (limit - 1..=limit + 1).prop_map(|count| "a".repeat(count));
    prop_oneof![3 => short, 1 => long, 1 => edge]
}

/// Step names, including some that resemble parts of a rollback.
fn step_name() -> impl Strategy<Value = String> {
    let pieces =
        ["a", "b", "0", "$", "[0,]", "[0,0]", "[1,]", "Rollback of ", " (rolling back child scopes)"];
    vec(prop::sample::select(pieces.to_vec()), 1..4).prop_map(|pieces| pieces.concat())
}

fn named(name: &str) -> StepDefinition {
    StepDefinition {
        name: name.to_owned().into(),
        ..StepDefinition::new("").compensated().handling_child_failure()
    }
}

fn instance(step: &str, handler_iteration: Option<u32>) -> Instance {
    Instance {
        step: step.into(),
        handler_iteration,
        definition: None,
        emitted: vec![],
        by_strategy: false,
        output: None,
    }
}
