//! Failures as data: a service gets the error of another service with its type, and the whole story is one
//! readable tree.
//!
//! ```text
//! cargo run -p examples --example failures
//! ```

use scoop::prelude::*;

/// An order for a cake.
#[derive(Message, Serialize, Deserialize)]
struct CakeOrdered {
    flavour: String,
    eggs: u32,
}

/// A request for this many eggs.
#[derive(Message, Serialize, Deserialize)]
struct EggsNeeded {
    eggs: u32,
}

/// The code is stored with the failure, so that the type can be renamed. The fields are stored, too.
#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[failure(code = "larder.short")]
#[error("{wanted} eggs were wanted, {left} are left")]
struct NotEnoughEggs {
    wanted: u32,
    left: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("the larder is no help")]
struct LarderShort(#[source] NotEnoughEggs);

#[derive(Default)]
struct Bakery;

#[saga]
#[subscribes(CakeOrdered)]
impl Bakery {
    #[step(on_child_failure = bake_smaller)]
    async fn gather(&self, scope: &mut Scope<'_>, cake: &CakeOrdered) -> Result<()> {
        scope.launch(EggsNeeded { eggs: cake.eggs }).await?;
        Ok(())
    }

    async fn bake_smaller(&self, _: &mut Scope<'_>, cake: &CakeOrdered, why: &Failure) -> Result<()> {
        match why.find::<NotEnoughEggs>() {
            Some(short) if short.left > 0 => {
                println!(
                    "a smaller {} cake, of {} eggs instead of {}",
                    cake.flavour, short.left, short.wanted
                );
                Ok(())
            }
            _ => Err(Error::failure(why.clone())),
        }
    }
}

#[derive(Default)]
struct Larder;

#[saga]
#[subscribes(EggsNeeded)]
impl Larder {
    #[step]
    async fn take(&self, _: &mut Scope<'_>, needed: &EggsNeeded) -> Result<()> {
        take_out(needed.eggs)?; // this line is noted, too
        Ok(())
    }
}

const LEFT: u32 = 3;

#[scoop::trace] // in a saga this is not needed
fn take_out(wanted: u32) -> Result<()> {
    if wanted > 100 {
        Err(LarderShort(NotEnoughEggs { wanted, left: 0 }))?;
    }
    if wanted > LEFT {
        Err(NotEnoughEggs { wanted, left: LEFT })?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;

    let cake = scoop.launch(CakeOrdered { flavour: "lemon".into(), eggs: 5 }).await?;
    assert_eq!(cake.wait().await?, Outcome::Committed);

    let cake = scoop.launch(CakeOrdered { flavour: "wedding".into(), eggs: 500 }).await?;
    let Outcome::RolledBack(failure) = cake.wait().await? else {
        panic!("the larder has no 500 eggs");
    };
    println!("\n{}", failure.report());

    let short = failure.find::<NotEnoughEggs>().expect("it has a code, so it comes back");
    assert_eq!((short.wanted, short.left), (500, 0));
    let raised = &failure.causes[0];
    assert!(raised.kind.ends_with("LarderShort"), "the type of an error without a code: {}", raised.kind);
    assert_eq!(raised.stack_trace.len(), 2, "a place for each `?` it passed");

    scoop.shutdown().await?;
    Ok(())
}
