//! Reactions of a saga to the failure of a child: ignore it, try another one, take another path, or fail as
//! well. All children of the step have ended by then, and the failed ones are rolled back.
//!
//! ```text
//! cargo run -p examples --example child_failures
//! ```

use scoop::ChildOutcome;
use scoop::prelude::*;
use scoop::tree::RunState;

#[derive(Message, Serialize, Deserialize)]
struct PartyPlan {
    budget: u32,
}

/// A request to a friend or a business.
#[derive(Message, Serialize, Deserialize)]
struct PartyFavour {
    of: String,
    granted: bool,
}

fn favour(of: &str, granted: bool) -> PartyFavour {
    PartyFavour { of: of.into(), granted }
}

#[derive(Default)]
struct Party;

#[saga]
#[subscribes(PartyPlan)]
impl Party {
    #[step(on_child_failure = enough_guests)]
    async fn invite(&self, scope: &mut Scope<'_>, _: &PartyPlan) -> Result<()> {
        for (guest, comes) in [("Ada", true), ("Ben", false), ("Cleo", true)] {
            scope.launch(favour(guest, comes)).await?;
        }
        Ok(())
    }

    /// Ignores the failure: the saga goes on.
    async fn enough_guests(&self, scope: &mut Scope<'_>, _: &PartyPlan, why: &Failure) -> Result<()> {
        let guests = scope.children().await?;
        let coming = guests.iter().filter(|guest| guest.outcome == ChildOutcome::Committed).count();
        println!("{coming} of {} guests come", guests.len());
        if coming >= 2 { Ok(()) } else { Err(Error::failure(why.clone())) }
    }

    #[step(on_child_failure = another_baker)]
    async fn order_cake(&self, scope: &mut Scope<'_>, _: &PartyPlan) -> Result<()> {
        scope.launch(favour("baker 0", false)).await?;
        Ok(())
    }

    /// Tries again: if the new child succeeds, the saga goes on. Otherwise this is called once more.
    async fn another_baker(&self, scope: &mut Scope<'_>, _: &PartyPlan, why: &Failure) -> Result<()> {
        println!("no cake: {}", why.root_causes()[0].message);
        let baker = scope.handler_iteration() + 1;
        scope.launch(favour(&format!("baker {baker}"), baker == 2)).await?;
        Ok(())
    }

    #[step(on_child_failure = stay_inside)]
    async fn ask_for_sunshine(&self, scope: &mut Scope<'_>, _: &PartyPlan) -> Result<()> {
        scope.launch(favour("the sky", false)).await?;
        Ok(())
    }

    /// Takes another path.
    async fn stay_inside(&self, _: &mut Scope<'_>, _: &PartyPlan, _: &Failure) -> Result<Next<PartyStep>> {
        println!("it rains, so no lanterns");
        Ok(Next::goto(PartyStep::Pay))
    }

    #[step]
    async fn hang_up_lanterns(&self, _: &mut Scope<'_>, _: &PartyPlan) -> Result<()> {
        unreachable!("in the rain?")
    }

    /// Without a handler the step fails with its child. All favours are rolled back.
    #[step]
    async fn pay(&self, scope: &mut Scope<'_>, party: &PartyPlan) -> Result<()> {
        scope.launch(favour("the bank", party.budget >= 100)).await?;
        Ok(())
    }
}

#[derive(Default)]
struct PartyFriends;

#[saga]
#[subscribes(PartyFavour)]
impl PartyFriends {
    #[step(rollback = withdraw)]
    async fn grant(&self, _: &mut Scope<'_>, favour: &PartyFavour) -> Result<()> {
        if favour.granted { Ok(()) } else { Err(Error::msg(format!("{} said no", favour.of))) }
    }

    async fn withdraw(&self, _: &mut Scope<'_>, favour: &PartyFavour, _: &Failure) -> Result<()> {
        println!("  {} need not bother", favour.of);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;

    let party = scoop.launch(PartyPlan { budget: 100 }).await?;
    assert_eq!(party.wait().await?, Outcome::Committed);
    let tree = party.tree().await?;
    let granted = tree.roots()[0].children.iter().filter(|favour| favour.state == RunState::Committed);
    assert_eq!(granted.count(), 4, "two guests, a cake and the money\n{tree}");

    println!("\nand with less money");
    let party = scoop.launch(PartyPlan { budget: 10 }).await?;
    let Outcome::RolledBack(why) = party.wait().await? else { panic!("the party was paid for") };
    assert_eq!(why.root_causes()[0].message, "the bank said no");
    let tree = party.tree().await?;
    let undone = tree.runs().iter().all(|run| matches!(run.state, RunState::RolledBack(_)));
    assert!(undone, "{tree}");

    scoop.shutdown().await?;
    Ok(())
}
