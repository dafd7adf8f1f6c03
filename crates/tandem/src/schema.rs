//! `tandem schema`: prints the JSON schema of a document that Tandem writes, for programs that read
//! it; it checks no document.

use crate::{Failure, numa, say, vnuma};
use clap::ValueEnum as _;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Value, json};

/// Prints the JSON schema of a document that Tandem writes; its `$id` ends with the version.
#[derive(clap::Args)]
pub struct Args {
    /// The document; without one, a list of them with their versions.
    document: Option<Documented>,
}

/// Documents that have a schema, by the command that writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Documented {
    /// 'tandem sim --json', 'tandem top --once --json' and the lab: the result document.
    Result,
    /// 'tandem top --json' without --once: one line.
    TopLine,
    /// 'tandem plan --json'.
    Plan,
    /// 'tandem admit --json' with --vm or --pool.
    Admission,
    /// 'tandem admit --json' of a whole tree.
    Reservations,
    /// 'tandem numa explain --json'.
    Homes,
    /// 'tandem vnuma plan --json'.
    VnumaPlan,
    /// 'tandem vnuma check --json'.
    VnumaCheck,
    /// 'tandem trace waits --json'.
    Waits,
    /// 'tandem trace cores --json'.
    Cores,
    /// 'tandem trace check --json'.
    Checked,
    /// 'tandem reproduce --json'.
    Reproduced,
    /// 'tandem knobs --json'.
    Knobs,
    /// 'tandem metrics --list --json'.
    Metrics,
    /// 'tandem doctor --json'.
    #[cfg(feature = "live")]
    Doctor,
    /// 'tandem reload --json'.
    #[cfg(feature = "live")]
    Reload,
    /// 'tandem trace record --json'.
    #[cfg(feature = "live")]
    Recorded,
}

impl Documented {
    /// Its name on the command line and in docs/schema.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
    }

    /// Its version, `MAJOR.MINOR`: the rule is that of the result document
    /// (`views::RESULT_VERSION`).
    fn version(self) -> &'static str {
        match self {
            Documented::Result => views::RESULT_VERSION,
            _ => "1.0",
        }
    }

    /// Its schema, without name and version.
    fn made(self) -> Value {
        match self {
            Documented::Result => views::result_schema().into(),
            Documented::TopLine => esxtop::json_schema(),
            Documented::Plan => of::<views::Plan>(),
            Documented::Admission => of::<entitlement::Admission>(),
            Documented::Reservations => of::<entitlement::Report>(),
            Documented::Homes => of::<Vec<(String, numa::Clients)>>(),
            Documented::VnumaPlan => of::<vnuma::plan::Json<'_>>(),
            Documented::VnumaCheck => of::<vnuma::check::Checked>(),
            Documented::Waits => of::<::trace::Report>(),
            Documented::Cores => of::<::trace::cores::Cores>(),
            Documented::Checked => of::<views::Checked>(),
            Documented::Reproduced => of::<Vec<reproduce::Experiment>>(),
            Documented::Knobs => of::<Vec<crate::knobs::Listed>>(),
            Documented::Metrics => ::metrics::list_schema(),
            #[cfg(feature = "live")]
            Documented::Doctor => of::<Vec<host::doctor::Finding>>(),
            #[cfg(feature = "live")]
            Documented::Reload => of::<host::Reloaded>(),
            #[cfg(feature = "live")]
            Documented::Recorded => of::<crate::trace::record::Made>(),
        }
    }

    /// Its schema.
    fn schema(self) -> Value {
        let mut schema = self.made();
        let (name, version) = (self.name(), self.version());
        if self != Documented::Result {
            schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
            schema["$id"] = json!(format!("urn:tandem:{name}:{version}"));
            schema["title"] = json!(format!("Tandem's document {name} {version}"));
        }
        schema
    }

    /// A line of the list: name, version, and what writes it.
    fn line(self) -> [String; 3] {
        let help = self.to_possible_value().and_then(|v| v.get_help().map(ToString::to_string));
        let what = help.unwrap_or_default();
        [self.name(), self.version().to_owned(), what.trim_end_matches('.').to_owned()]
    }
}

/// The schema of a type as it is written, in JSON Schema 2020-12.
fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings.into_generator().into_root_schema_for::<T>().into()
}

/// Runs `tandem schema`.
///
/// # Errors
/// Only when the output cannot be written.
pub fn main(args: &Args) -> Result<(), Failure> {
    let Some(document) = args.document else {
        let mut table = views::Table::new(&["<document", "<version", "<written by"]);
        Documented::value_variants().iter().for_each(|d| table.row(d.line()));
        return Ok(say::all(&table.text())?);
    };
    Ok(say::json(&document.schema())?)
}
