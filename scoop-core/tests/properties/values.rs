//! Properties of single values: lineages, failures as JSON, names of a rollback's parts.

use std::collections::BTreeSet;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use scoop_core::{
    Definition, Failure, Frame, Instance, Lineage, Plan, RollbackNames, StepDefinition, StepKind,
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
    fn a_failure_is_the_same_after_it_was_json(failure in failure()) {
        let json = serde_json::to_value(&failure).expect("a failure is JSON");
        let read: Failure = serde_json::from_value(json.clone()).expect("it was a failure");
        prop_assert_eq!(&read, &failure);
        prop_assert!(read.contains(&failure) && failure.contains(failure.root_causes()[0]));
        let text = serde_json::to_string(&failure).expect("a failure is JSON");
        prop_assert_eq!(serde_json::from_str::<Failure>(&text).expect("it was a failure"), failure);
        let has_five_keys = every_failure(&json, &|json| {
            let keys: BTreeSet<_> = json.as_object().expect("an object").keys().cloned().collect();
            keys == ["causes", "message", "source", "stackTrace", "type"].map(String::from).into()
        });
        prop_assert!(has_five_keys);
        prop_assert!(!text.contains("\\u0000"));
    }

    #[test]
    fn parts_of_a_rollback_have_names_of_their_own(
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
}

fn every_failure(json: &serde_json::Value, holds: &impl Fn(&serde_json::Value) -> bool) -> bool {
    let causes = json["causes"].as_array().expect("causes are a list");
    holds(json) && causes.iter().all(|cause| every_failure(cause, holds))
}

fn failure() -> impl Strategy<Value = Failure> {
    let text = || proptest::collection::vec(any::<char>(), 0..8).prop_map(String::from_iter);
    let place = (text(), any::<i64>(), proptest::option::of(text()));
    let frame = place.prop_map(|(file_name, line_number, name)| Frame {
        file_name,
        line_number,
        class_name: None,
        function_name: name,
    });
    let leaf = (text(), text(), text(), vec(frame, 0..2)).prop_map(|(kind, message, source, frames)| {
        let mut failure = Failure::new(kind, message, source);
        failure.stack_trace = frames.into_iter().map(without_nul).collect();
        failure
    });
    leaf.prop_recursive(3, 12, 3, |inner| {
        (inner.clone(), vec(inner, 0..3)).prop_map(|(failure, causes)| failure.caused_by(causes))
    })
}

/// A frame names what a compiler names: there is no NUL in it.
fn without_nul(frame: Frame) -> Frame {
    Frame {
        file_name: frame.file_name.replace('\0', ""),
        function_name: frame.function_name.map(|name| name.replace('\0', "")),
        ..frame
    }
}

/// Names, and such as try to look like a part of a rollback.
fn step_name() -> impl Strategy<Value = String> {
    let pieces =
        ["a", "b", "0", "$", "[0,]", "[0,0]", "[1,]", "Rollback of ", " (rolling back child scopes)"];
    vec(prop::sample::select(pieces.to_vec()), 1..4).prop_map(|pieces| pieces.concat())
}

fn named(name: &str) -> StepDefinition {
    StepDefinition {
        name: name.to_owned().into(),
        compensated: true,
        handles_child_failure: true,
        kind: StepKind::Code,
    }
}

fn instance(step: &str, handler_iteration: Option<u32>) -> Instance {
    Instance { step: step.into(), handler_iteration, emitted: vec![], output: None }
}
