//! The launches of steps, as they are recorded.

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StepTopic {
    pub(crate) saga: String,
    pub(crate) step: String,
    pub(crate) topic: String,
}
