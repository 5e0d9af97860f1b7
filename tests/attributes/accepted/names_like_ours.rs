//! User names do not collide with generated ones.
#![deny(warnings)]
use scoop::prelude::{Deserialize, Saga, Serialize, saga, step, subscribes};

#[derive(scoop::Message, Serialize, Deserialize)]
struct Message;

#[derive(Serialize, Deserialize)]
struct Probe;

#[derive(Serialize, Deserialize)]
struct StepEnd;

type Error = scoop::Error;

#[derive(Default)]
struct Registration;

#[saga]
#[subscribes(Message)]
impl Registration {
    #[step]
    async fn done(&self, _: &mut scoop::Scope<'_>, _: &Message) -> Result<Probe, Error> {
        Ok(Probe)
    }

    #[step(rollback = jump)]
    async fn send(
        &self,
        _: &mut scoop::Scope<'_>,
        _: &Message,
        _: &Probe,
    ) -> Result<StepEnd, Error> {
        send();
        Ok(StepEnd)
    }

    #[step(name = "step")]
    async fn scope(
        &self,
        _: &mut scoop::Scope<'_>,
        _: &Message,
        _: &Probe,
        _: &StepEnd,
    ) -> Result<scoop::Next<RegistrationStep>, Error> {
        Ok(scoop::Next::Continue)
    }

    async fn jump(
        &self,
        _: &mut scoop::Scope<'_>,
        _: &Message,
        _: &StepEnd,
        _: &scoop::Failure,
    ) -> Result<(), Error> {
        Ok(())
    }
}

fn send() {}

pub(crate) fn main() {
    assert_eq!(Registration::DEFINITION.steps[2].name, "step");
}
