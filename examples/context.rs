//! What a whole hierarchy knows without every message carrying it. The context travels down, from
//! whoever launches a message to its handlers, and along, from step to step, also through a rollback;
//! it never travels up.
//!
//! ```text
//! cargo run --example context
//! ```

use scoop::prelude::*;

/// For which insurance company all this is done. Its key is the name of the type.
#[derive(Debug, PartialEq, ContextKey, Serialize, Deserialize)]
struct Insurer(String);

/// A key that other programs rely on, whatever the type is called here.
#[derive(Debug, PartialEq, ContextKey, Serialize, Deserialize)]
#[context(key = "claims.suspicion")]
struct Suspicion {
    percent: u8,
}

/// Whom the garage has put on the job.
#[derive(Debug, PartialEq, ContextKey, Serialize, Deserialize)]
struct Mechanic(String);

#[derive(Message, Serialize, Deserialize)]
struct DamageReported {
    plate: String,
}

#[derive(Message, Serialize, Deserialize)]
struct InspectCar {
    plate: String,
}

#[derive(Default)]
struct DamageClaims;

#[saga]
#[subscribes(DamageReported)]
impl DamageClaims {
    #[step(rollback = close)]
    async fn open(&self, scope: &mut Scope<'_>, damage: &DamageReported) -> Result<()> {
        println!("{}: a claim at {:?}", damage.plate, scope.get::<Insurer>()?);
        scope.set(Suspicion { percent: 20 })?;
        scope.launch(InspectCar { plate: damage.plate.clone() }).await?;
        Ok(())
    }

    #[step]
    async fn decide(&self, scope: &mut Scope<'_>, _: &DamageReported) -> Result<()> {
        // Along: what the step before set. Not up: what the garage set.
        assert_eq!(scope.get::<Suspicion>()?, Some(Suspicion { percent: 20 }));
        assert_eq!(scope.get::<Mechanic>()?, None);
        // Kept although the step fails, so that those who undo know what it knew.
        scope.set(Suspicion { percent: 99 })?;
        Err(Error::msg("this car does not exist"))
    }

    async fn close(&self, scope: &mut Scope<'_>, damage: &DamageReported, why: &Failure) -> Result<()> {
        println!("{}: closed, with {:?}: {}", damage.plate, scope.get::<Suspicion>()?, why.message);
        assert_eq!(scope.get::<Suspicion>()?, Some(Suspicion { percent: 99 }));
        Ok(())
    }
}

#[derive(Default)]
struct ClaimsGarage;

#[saga]
#[subscribes(InspectCar)]
impl ClaimsGarage {
    #[step(rollback = send_bill)]
    async fn inspect(&self, scope: &mut Scope<'_>, car: &InspectCar) -> Result<()> {
        println!("  the garage looks at {} with {:?}", car.plate, scope.get::<Suspicion>()?);
        // Down: what the launcher of its launcher said, and what its launcher set.
        assert_eq!(scope.get::<Insurer>()?, Some(Insurer("Northwind Mutual".into())));
        assert_eq!(scope.get::<Suspicion>()?, Some(Suspicion { percent: 20 }));
        scope.set(Mechanic("Olga".into()))?;
        Ok(())
    }

    /// Knows what it had set itself, and what the claim had learned when it turned back.
    async fn send_bill(&self, scope: &mut Scope<'_>, _: &InspectCar, _: &Failure) -> Result<()> {
        println!("  {:?} went there in vain, with {:?}", scope.get::<Mechanic>()?, scope.get::<Suspicion>()?);
        assert_eq!(scope.get::<Mechanic>()?, Some(Mechanic("Olga".into())));
        assert_eq!(scope.get::<Suspicion>()?, Some(Suspicion { percent: 99 }));
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let damage = DamageReported { plate: "1AB 2345".into() };
    let claim = scoop.launch(damage).with(Insurer("Northwind Mutual".into())).await?;

    // An assertion that does not hold fails its step; in a compensation that is `RollbackFailed`.
    let Outcome::RolledBack(why) = claim.wait().await? else { panic!("{}", claim.tree().await?) };
    assert_eq!(why.message, "this car does not exist");
    scoop.shutdown().await?;
    Ok(())
}
