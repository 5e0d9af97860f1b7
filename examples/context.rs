//! Data for a whole hierarchy that no message has to carry. The context travels down, from the launcher of a
//! message to its handlers, and along, from step to step, also through a rollback. It never travels up.
//!
//! ```text
//! cargo run -p examples --example context
//! ```

use scoop::prelude::*;

/// The insurance company of the claim. Its key is the name of the type.
#[derive(Debug, PartialEq, ContextKey, Serialize, Deserialize)]
struct Insurer(String);

/// A key that other programs rely on. It does not depend on the name of the type.
#[derive(Debug, PartialEq, ContextKey, Serialize, Deserialize)]
#[context(key = "claims.suspicion")]
struct Suspicion {
    percent: u8,
}

/// The mechanic chosen by the garage.
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
        // Along: the value from the previous step. Not up: the value from the garage.
        assert_eq!(scope.get::<Suspicion>()?, Some(Suspicion { percent: 20 }));
        assert_eq!(scope.get::<Mechanic>()?, None);
        // Kept although the step fails, so that compensations can read it.
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
        // Down: the values from its launcher, and from the launcher above that.
        assert_eq!(scope.get::<Insurer>()?, Some(Insurer("Northwind Mutual".into())));
        assert_eq!(scope.get::<Suspicion>()?, Some(Suspicion { percent: 20 }));
        scope.set(Mechanic("Olga".into()))?;
        Ok(())
    }

    /// Reads the garage's own value, and the claim's value from the begin of its rollback.
    async fn send_bill(&self, scope: &mut Scope<'_>, _: &InspectCar, _: &Failure) -> Result<()> {
        println!("  {:?} went for nothing, with {:?}", scope.get::<Mechanic>()?, scope.get::<Suspicion>()?);
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

    // A failed assertion fails its step. In a compensation that would be `RollbackFailed`.
    let Outcome::RolledBack(why) = claim.wait().await? else { panic!("{}", claim.tree().await?) };
    assert_eq!(why.message, "this car does not exist");
    scoop.shutdown().await?;
    Ok(())
}
