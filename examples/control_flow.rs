//! The next step of a saga: a step repeats itself, jumps back so that a loop spans several steps, or goes on.
//! Every instance of a step is recorded. If the saga fails, each instance is compensated separately, the newest
//! first, with its own iteration and its own value.
//!
//! ```text
//! cargo run -p examples --example control_flow
//! ```

use scoop::prelude::*;

/// A round of the delivery van: the number of crates for each door.
#[derive(Message, Serialize, Deserialize)]
struct VanRound {
    crates: Vec<u32>,
    bridge_is_open: bool,
}

/// The door where the van is.
#[derive(Serialize, Deserialize)]
struct Door(usize);

#[derive(Default)]
struct Van;

#[saga]
#[subscribes(VanRound)]
impl Van {
    #[step(rollback = back_up)]
    async fn drive(&self, _: &mut Scope<'_>, _: &VanRound, last: Option<&Door>) -> Result<Door> {
        let door = last.map_or(0, |last| last.0 + 1);
        println!("to door {door}");
        Ok(Door(door))
    }

    /// Unloads one crate at a time. After the last one the van goes on to the next door.
    #[step(rollback = load_again)]
    async fn unload(&self, scope: &mut Scope<'_>, round: &VanRound, at: &Door) -> Result<Next<VanStep>> {
        println!("  crate {}", scope.iteration());
        Ok(if scope.iteration() + 1 < round.crates[at.0] {
            Next::Repeat
        } else if at.0 + 1 < round.crates.len() {
            Next::goto(VanStep::Drive)
        } else {
            Next::Continue
        })
    }

    #[step]
    async fn return_home(&self, _: &mut Scope<'_>, round: &VanRound) -> Result<()> {
        if round.bridge_is_open { Ok(()) } else { Err(Error::msg("the bridge is closed")) }
    }

    /// Gets the value of exactly this instance of `drive`.
    async fn back_up(&self, _: &mut Scope<'_>, _: &VanRound, door: &Door, _: &Failure) -> Result<()> {
        println!("away from door {}", door.0);
        Ok(())
    }

    async fn load_again(
        &self,
        scope: &mut Scope<'_>,
        round: &VanRound,
        at: &Door,
        _: &Failure,
    ) -> Result<()> {
        println!("  crate {} of door {} back into the van", scope.iteration(), at.0);
        assert!(scope.iteration() < round.crates[at.0], "this door never got that crate");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;

    let round = scoop.launch(VanRound { crates: vec![2, 1], bridge_is_open: true }).await?;
    assert_eq!(round.wait().await?, Outcome::Committed);

    println!("\nand now the bridge is closed");
    let round = scoop.launch(VanRound { crates: vec![2, 1], bridge_is_open: false }).await?;
    assert!(matches!(round.wait().await?, Outcome::RolledBack(_)));
    let tree = round.tree().await?;
    let steps: Vec<&str> = tree.roots()[0].events.iter().filter_map(|event| event.step.as_deref()).collect();
    let there = ["drive", "unload", "unload", "drive", "unload", "return_home"];
    assert!(steps.starts_with(&there), "{tree}");
    let back = ["unload[2,]", "drive[1,]", "unload[1,]", "unload[0,]", "drive[0,]"];
    let undone = steps.iter().filter_map(|step| step.strip_prefix("Rollback of "));
    let mut undone: Vec<&str> = undone.filter(|step| step.ends_with(']')).collect();
    undone.dedup();
    assert_eq!(undone, back, "{tree}");

    scoop.shutdown().await?;
    Ok(())
}
