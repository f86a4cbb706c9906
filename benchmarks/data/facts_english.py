# ruff: noqa: E501
# fmt: off
"""Facts in English. Every sentence is invented; the entities are filled in by `invented_names`."""

from __future__ import annotations

from benchmarks.data.facts import Attribute, Collection, Domain, Language, Link

_DOMAINS = (
    Domain(
        "expedition",
        "the {surname} expedition",
        (
            Attribute(
                "person",
                ("{e} was led by {v}", "command of {e} lay in the hands of {v}", "{v} was chosen to lead {e}"),
                ("Who led {e}?", "Under whose command did {e} stand?"),
            ),
            Attribute(
                "date",
                ("{e} set out on {v}", "it was {v} when {e} finally left the harbour", "the departure of {e} took place on {v}"),
                ("On which date did {e} set out?", "When did {e} leave?"),
            ),
            Attribute(
                "count kilometres",
                ("{e} covered {v} on foot", "on foot alone {e} put {v} behind it"),
                ("How many kilometres did {e} cover on foot?", "What distance did {e} walk?"),
            ),
            Attribute(
                "place",
                ("{e} pitched its base camp near {v}", "the base camp of {e} stood a short walk from {v}"),
                ("Near which place did {e} have its base camp?", "Where was the base camp of {e}?"),
            ),
            Attribute(
                "money crowns",
                ("the provisions of {e} cost {v}", "{e} paid {v} for its provisions"),
                ("How much did the provisions of {e} cost?", "What did {e} pay for its provisions?"),
            ),
        ),
    ),
    Domain(
        "bridge",
        "the {place} viaduct",
        (
            Attribute(
                "decimal metres",
                ("the main span of {e} measures {v}", "{e} crosses the gorge with a main span of {v}"),
                ("How long is the main span of {e}?", "What does the main span of {e} measure?"),
            ),
            Attribute("person", ("{e} was designed by {v}", "the drawings of {e} carry the name of {v}"), ("Who designed {e}?", "Who is the designer of {e}?")),
            Attribute(
                "date",
                ("{e} was opened to traffic on {v}", "the first train ran over {e} on {v}"),
                ("On which date was {e} opened?", "When did the first traffic cross {e}?"),
            ),
            Attribute(
                "money tonnes",
                ("{v} of steel went into {e}", "the builders used {v} of steel for {e}"),
                ("How much steel was used for {e}?", "How many tonnes of steel went into {e}?"),
            ),
            Attribute(
                "firm",
                ("{e} was built by the firm {v}", "the contract for building {e} went to {v}"),
                ("Which firm built {e}?", "Who got the contract for building {e}?"),
            ),
        ),
    ),
    Domain(
        "software",
        "the program {software}",
        (
            Attribute(
                "version",
                ("{e} has verified its backups by default since {v}", "with {v}, {e} began to verify its backups by default"),
                ("Since which version has {e} verified its backups by default?", "With which version did {e} begin to verify backups by default?"),
            ),
            Attribute(
                "version",
                ("{e} dropped the old archive format in {v}", "support for the old archive format ended in {v} of {e}"),
                ("In which version did {e} drop the old archive format?", "Which version of {e} no longer supports the old archive format?"),
            ),
            Attribute(
                "person",
                ("{e} is maintained by {v}", "every change to {e} passes over the desk of its maintainer, {v}"),
                ("Who maintains {e}?", "Who is the maintainer of {e}?"),
            ),
            Attribute(
                "port",
                ("{e} listens on port {v} unless told otherwise", "unless it is configured differently, {e} uses port {v}"),
                ("On which port does {e} listen by default?", "What is the default port of {e}?"),
            ),
            Attribute(
                "place",
                ("{e} first went into service at the waterworks of {v}", "the waterworks of {v} were the first to run {e}"),
                ("Where did {e} first go into service?", "Which town's waterworks first ran {e}?"),
            ),
        ),
    ),
    Domain(
        "contract",
        "the {place} supply contract",
        (
            Attribute(
                "money guilders",
                ("{e} provides for an annual fee of {v}", "every year {v} fall due under {e}"),
                ("What annual fee does {e} provide for?", "How much is due every year under {e}?"),
            ),
            Attribute(
                "date", ("{e} was signed on {v}", "the parties put their names to {e} on {v}"), ("When was {e} signed?", "On which date did the parties sign {e}?")
            ),
            Attribute(
                "count days",
                ("{e} can be terminated with {v} of notice", "whoever wants to leave {e} must give {v} of notice"),
                ("What is the notice period of {e}?", "How many days of notice are needed to terminate {e}?"),
            ),
            Attribute(
                "person",
                ("{e} was countersigned by the notary {v}", "as notary, {v} countersigned {e}"),
                ("Which notary countersigned {e}?", "Who countersigned {e} as notary?"),
            ),
            Attribute(
                "place",
                ("disputes over {e} are heard by the court of {v}", "{e} names {v} as the place of jurisdiction"),
                ("Which court hears disputes over {e}?", "What place of jurisdiction does {e} name?"),
            ),
        ),
    ),
    Domain(
        "tapestry",
        "the {surname} tapestry",
        (
            Attribute(
                "money florins",
                ("{e} changed hands at auction for {v}", "at auction {e} fetched {v}"),
                ("What price did {e} fetch at auction?", "For how much was {e} sold at auction?"),
            ),
            Attribute("person", ("{e} was restored by {v}", "the restorer {v} spent a winter on {e}"), ("Who restored {e}?", "Which restorer worked on {e}?")),
            Attribute("count centimetres", ("{e} is {v} wide", "a visitor who paces along {e} will find it {v} wide"), ("How wide is {e}?", "What is the width of {e}?")),
            Attribute(
                "place",
                ("{e} came to light in an attic in {v}", "it was an attic in {v} that had hidden {e}"),
                ("Where did {e} come to light?", "In which town was {e} found?"),
            ),
            Attribute("date", ("{e} was insured on {v}", "the insurance of {e} dates from {v}"), ("When was {e} insured?", "From which date is the insurance of {e}?")),
        ),
    ),
    Domain(
        "committee",
        "the {place} drainage committee",
        (
            Attribute("person", ("{e} is chaired by {v}", "the chair of {e} is held by {v}"), ("Who chairs {e}?", "Who holds the chair of {e}?")),
            Attribute(
                "money marks",
                ("{e} voted {v} for new pumps", "for new pumps {v} were granted by {e}"),
                ("How much did {e} vote for new pumps?", "What sum did {e} grant for new pumps?"),
            ),
            Attribute(
                "date",
                ("{e} decided on {v} to close the old sluice", "the old sluice was to close: so {e} decided on {v}"),
                ("When did {e} decide to close the old sluice?", "On which date did {e} decide about the old sluice?"),
            ),
            Attribute(
                "place",
                ("{e} keeps its archive in {v}", "whoever looks for the archive of {e} must travel to {v}"),
                ("Where does {e} keep its archive?", "In which place is the archive of {e}?"),
            ),
            Attribute(
                "count pages",
                ("the yearly report of {e} runs to {v}", "{e} filled {v} with its yearly report"),
                ("How many pages does the yearly report of {e} have?", "How long is the yearly report of {e}?"),
            ),
        ),
    ),
    Domain(
        "ship",
        "the ship {ship}",
        (
            Attribute(
                "person", ("{e} sails under Captain {v}", "the captain of {e} is called {v}"), ("Who is the captain of {e}?", "Under which captain does {e} sail?")
            ),
            Attribute(
                "money tons", ("{e} displaces {v}", "the displacement of {e} is given as {v}"), ("What is the displacement of {e}?", "How many tons does {e} displace?")
            ),
            Attribute(
                "date",
                ("{e} was launched on {v}", "the launch of {e} was celebrated on {v}"),
                ("When was {e} launched?", "On which date did the launch of {e} take place?"),
            ),
            Attribute(
                "place", ("the home port of {e} is {v}", "{e} is registered in {v}, its home port"), ("What is the home port of {e}?", "In which port is {e} at home?")
            ),
            Attribute("count sailors", ("{e} needs a crew of {v}", "a crew of {v} serves on {e}"), ("How large is the crew of {e}?", "How many sailors does {e} need?")),
        ),
    ),
    Domain(
        "assay",
        "the {surname} assay",
        (
            Attribute(
                "decimal degrees",
                ("{e} is run at {v}", "the bath for {e} is held at {v}"),
                ("At which temperature is {e} run?", "At how many degrees is the bath for {e} held?"),
            ),
            Attribute(
                "person",
                ("{e} was first described by {v}", "the first description of {e} came from the pen of {v}"),
                ("Who first described {e}?", "Who wrote the first description of {e}?"),
            ),
            Attribute(
                "count milligrams",
                ("{e} takes a sample of {v}", "a sample of {v} is enough for {e}"),
                ("How large a sample does {e} take?", "How many milligrams does {e} need?"),
            ),
            Attribute(
                "place",
                ("the reference laboratory for {e} stands in {v}", "{e} has its reference laboratory in {v}"),
                ("Where is the reference laboratory for {e}?", "Which place has the reference laboratory for {e}?"),
            ),
            Attribute(
                "firm",
                ("the reagent for {e} is sold by {v} alone", "only {v} sells the reagent for {e}"),
                ("Which firm sells the reagent for {e}?", "Who is the only seller of the reagent for {e}?"),
            ),
        ),
    ),
)

_LINKS = (
    Link("expedition", "ship", ("{a} made the crossing aboard {b}", "{b} was hired to carry {a} across"), "the ship that carried {a}"),
    Link("committee", "contract", ("{a} negotiated {b} and no other", "it was {a} that negotiated {b}"), "the supply contract that {a} negotiated"),
    Link(
        "contract",
        "software",
        ("the invoices under {a} are kept with {b}", "{a} requires all invoices to be kept with {b}"),
        "the program with which invoices under {a} are kept",
    ),
    Link("tapestry", "bridge", ("{a} was paid for with the tolls of {b}", "the tolls of {b} paid for {a}"), "the viaduct whose tolls paid for {a}"),
    Link(
        "ship",
        "assay",
        ("the hull of {a} is inspected with {b}", "{b} is the method used to inspect the hull of {a}"),
        "the assay with which the hull of {a} is inspected",
    ),
    Link(
        "bridge",
        "committee",
        ("the upkeep of {a} is watched over by {b}", "{b} watches over the upkeep of {a}"),
        "the drainage committee that watches over the upkeep of {a}",
    ),
)

_COLLECTIONS = (
    Collection("expedition", "place", ("{e} left a depot in {v}", "a depot of {e} was laid in {v}"),
        which="In which places did {e} leave a depot? Name all of them.", how_many="In how many places did {e} leave a depot?"),
    Collection("ship", "place", ("{e} once called at {v}", "{v} saw {e} in its harbour for a day"),
        which="At which places did {e} call? Name all of them.", how_many="At how many places did {e} call?"),
    Collection("bridge", "person", ("{e} was once inspected by {v}", "an inspection of {e} was made by {v}"),
        which="Who inspected {e}? Name everyone.", how_many="How many people inspected {e}?"),
    Collection("committee", "money marks", ("{e} lent {v} to a mill", "a mill borrowed {v} from {e}"),
        how_many="How many loans did {e} give to mills?", total="How many marks did {e} lend to mills in all?",
        largest="What is the largest sum that {e} lent to a mill?"),
    Collection("ship", "money tons", ("{e} landed a cargo of {v}", "a cargo of {v} came ashore from {e}"),
        how_many="How many cargoes did {e} land?", total="How many tons of cargo did {e} land in all?",
        largest="What is the largest cargo that {e} landed?"),
)

ENGLISH = Language(
    code="en",
    chars_per_token=4.2,
    domains=_DOMAINS,
    links=_LINKS,
    collections=_COLLECTIONS,
    lead_ins=(
        "Little of what was written about {e} has survived.",
        "A short note on {e} follows.",
        "Readers often ask about {e}, and the files give only part of an answer.",
        "Among the loose papers there is also a sheet about {e}.",
        "More could be said of {e}, but not here.",
        "The entry on {e} was copied out by hand.",
    ),
    hearsay=(
        "Rumour had it that {c}, but nobody could name a source.",
        "An unsigned letter claims, without any proof, that {c}.",
        "In the canteen it was said that {c}, though no one had checked.",
    ),
    supported=(
        "The sealed register, checked by two witnesses, states that {c}.",
        "According to the official record, {c}.",
        "The audited minutes are clear on this point: {c}.",
    ),
    superseded=("An early draft still assumed that {c}.", "In the first edition one could read that {c}.", "The preliminary notice said that {c}."),
    updated=(
        "A later correction replaced this: {c}.",
        "The revised edition withdrew the earlier figure and states that {c}.",
        "As the final notice puts it, correcting the preliminary one, {c}.",
    ),
)
