//! Steps that run at most once.

use scoop::Interrupted;

use super::*;
use crate::support::{Database, Notes};

/// What the step does that runs at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Does {
    Succeed,
    Fail,
    LoseTheDatabase,
    RepeatTwice,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "payments")]
struct Bill(Does);

struct Payments {
    notes: Notes,
}

#[saga(name = "payments")]
#[subscribes(Bill)]
impl Payments {
    #[step(rollback = give_back)]
    async fn prepare(&self, _: &mut Scope<'_>, _: &Bill) -> Result<()> {
        Ok(())
    }

    async fn give_back(&self, _: &mut Scope<'_>, _: &Bill, why: &Failure) -> Result<()> {
        let step = why.find::<Interrupted>().map(|interrupted| interrupted.step);
        self.notes.add(format!("give back, interrupted: {step:?}"));
        Ok(())
    }

    #[step(delivery = "at_most_once", finally = hang_up)]
    async fn pay(&self, scope: &mut Scope<'_>, Bill(does): &Bill) -> Result<()> {
        self.notes.add(format!("pay {}", scope.attempt()));
        match does {
            Does::Succeed | Does::RepeatTwice => Ok(()),
            Does::Fail => Err(SIMULATED.into()),
            Does::LoseTheDatabase => Err(Error::infrastructure(SIMULATED)),
        }
    }

    async fn hang_up(&self, _: &mut Scope<'_>, _: &Bill) -> Result<()> {
        self.notes.add("hang up");
        Ok(())
    }

    #[step(delivery = "at_most_once")]
    async fn thank(&self, scope: &mut Scope<'_>, Bill(does): &Bill) -> Result<Next<PaymentsStep>> {
        self.notes.add(format!("thank {}", scope.iteration()));
        let again = *does == Does::RepeatTwice && scope.iteration() < 2;
        Ok(if again { Next::Repeat } else { Next::Continue })
    }
}

/// The outcome of a payment, and the notes.
async fn pays(does: Does) -> Result<(Outcome, Vec<String>)> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = db.start((Payments { notes: notes.clone() },)).await?;
    let outcome = scoop.launch(Bill(does)).await?.ends().await?;
    Ok((outcome, notes.all()))
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_runs_at_most_once_and_succeeds_is_an_ordinary_step() -> Result<()> {
    let (outcome, notes) = pays(Does::Succeed).await?;
    assert_eq!(outcome, Outcome::Committed);
    assert_eq!(notes, ["pay 0", "hang up", "thank 0"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_of_a_step_that_runs_at_most_once_is_its_own() -> Result<()> {
    let (outcome, notes) = pays(Does::Fail).await?;
    let Outcome::RolledBack(why) = outcome else { panic!("{outcome:?}") };
    assert!(why.to_string().contains("Simulated failure"), "{why}");
    assert_eq!(notes, ["pay 0", "hang up", "give back, interrupted: None"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_loses_the_database_does_not_run_again_and_is_interrupted() -> Result<()> {
    let (outcome, notes) = pays(Does::LoseTheDatabase).await?;
    let Outcome::RolledBack(why) = outcome else { panic!("{outcome:?}") };
    let interrupted = why.find::<Interrupted>().expect("the failure says so");
    assert_eq!((&*interrupted.saga, &*interrupted.step), ("payments", "pay"));
    assert_eq!(notes, ["pay 0", "hang up", "give back, interrupted: Some(\"pay\")"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_step_runs_once_in_each_iteration() -> Result<()> {
    let (outcome, notes) = pays(Does::RepeatTwice).await?;
    assert_eq!(outcome, Outcome::Committed);
    assert_eq!(notes, ["pay 0", "hang up", "thank 0", "thank 1", "thank 2"]);
    Ok(())
}
