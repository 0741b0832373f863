"""`recover` on a 0.7 partition: the chain of its files, then one of the two policies."""

from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.steps import FileIdentity
from kseg.recovery.kafka07.load07 import chain_of, load_as_broker07
from kseg.recovery.policy import BrokerState, LoadFailure, Policy, Repair
from kseg.segment.partition.names import Role, parse_file_name


def recover07(
    directory: str, inputs: tuple[FileIdentity, ...], policy: Policy, broker_state: BrokerState
) -> Repair:
    """The result of `policy` for the `.kafka` files among `inputs`.

    inputs: the files of the directory, or one of them; the file after it still bounds it. broker_state: whether the shutdown was
    clean; 0.7 has no checkpoints. Raises UnreadableInput.
    """
    links = chain_of(directory, inputs)
    image = DirectoryImage.of(inputs)
    nameless = _nameless(inputs)
    if nameless and policy is Policy.KAFKA:
        sentence = f"the name of {nameless} is not a number"
        return Repair.without_log(image, load_failure=LoadFailure("NumberFormatException", sentence))
    if not links:
        return Repair.without_log(image)
    if policy is Policy.KAFKA:
        return load_as_broker07(directory, links, image, is_clean=broker_state.is_clean)
    from kseg.recovery.kafka07.salvage07 import salvage07

    return salvage07(directory, links, image)


def _nameless(inputs: tuple[FileIdentity, ...]) -> str:
    """A `.kafka` file whose name is not a number, which makes 0.7 fail; empty when there is none."""
    names = (parse_file_name(file.name) for file in inputs)
    found = (n.name for n in names if n.role is Role.KAFKA07_LOG and n.is_live and n.base_offset is None)
    return next(found, "")
