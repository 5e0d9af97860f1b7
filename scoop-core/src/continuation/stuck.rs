//! Why a definition cannot continue a run.

use crate::visible_step;

/// The reason why the definition at hand cannot continue a run. Nothing is lost: a definition that fits continues it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Stuck {
    /// The recorded step is gone, and a new step has its position.
    #[error(
        "saga `{saga}` has no step `{step}` any more, where the run stands, and `{instead}` stands in its place; \
         if that is the same step under another name, say so: `#[step(was = \"{}\")]`",
        visible_step(step)
    )]
    Ambiguous {
        /// The saga.
        saga: String,
        /// The step that is gone.
        step: String,
        /// The new step.
        instead: String,
    },
    /// A step was moved across the position of the run.
    #[error(
        "saga `{saga}`: step `{step}` was moved and would {what} after `{after}`; a program with the former order \
         can finish the run"
    )]
    Moved {
        /// The saga.
        saga: String,
        /// The step that was moved.
        step: String,
        /// The newest step that the run completed.
        after: String,
        /// The effect on the moved step.
        what: &'static str,
    },
    /// A step takes the value of a step that was inserted before the position of the run.
    #[error(
        "saga `{saga}`: step `{step}` takes what `{producer}` returns, which did not run for this run and will not; \
         take an `Option` of it, or let a program with the former steps finish the run"
    )]
    NoValue {
        /// The saga.
        saga: String,
        /// The step that takes the value.
        step: String,
        /// The step that returns it.
        producer: String,
    },
    /// A newer program has renamed a step that the run has passed.
    #[error(
        "saga `{saga}` has no step `{step}`, which was `{was}` before a newer program renamed it; that program, or one \
         with `#[step(was = ..)]`, can continue the run"
    )]
    RenamedSince {
        /// The saga.
        saga: String,
        /// The recorded step.
        step: String,
        /// Its former names.
        was: String,
    },
    /// A step that must be undone was removed.
    #[error(
        "saga `{saga}` has no step `{step}`, which has a compensation in the definition under which the run completed \
         it; keep that step, or write a step with `was = \"{step}\"` whose compensation undoes that and nothing else"
    )]
    NoCompensation {
        /// The saga.
        saga: String,
        /// The removed step.
        step: String,
    },
    /// A recorded step is not in the definition.
    #[error(
        "saga `{saga}` has no step `{step}`, which the run has recorded; keep that step, or if it has another name \
         now, say so: `#[step(was = \"{}\")]`",
        visible_step(step)
    )]
    NoSuchStep {
        /// The saga.
        saga: String,
        /// The recorded step.
        step: String,
    },
    /// A recorded part of the rollback does not occur in its plan.
    #[error(
        "the rollback of saga `{saga}` has no part `{part}`, which the run has recorded; was a step renamed?"
    )]
    NoSuchPart {
        /// The saga.
        saga: String,
        /// The recorded part.
        part: String,
    },
    /// The caller did not read the history of a rollback. This is a bug in scoop.
    #[error("the rollback of saga `{saga}` was to go on without its history; this is a bug in scoop")]
    NoPlan {
        /// The saga.
        saga: String,
    },
}
