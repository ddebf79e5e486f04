-- GAMMA's frames between active ports: a head, a part of a message, and a CRC-32, which includes the Ethernet header.
-- Loaded by niclab.lua. Wire format: device/model/src/models/gamma/wire.rs, device/abi/src/gamma.rs.

local check_sequence = (...).crc32

local PROTOCOL = 12
local HEAD_BYTES = 8
local CHECK_BYTES = 4
local DATA, ACKNOWLEDGEMENT = 1, 2
local KINDS = { [DATA] = "data", [ACKNOWLEDGEMENT] = "acknowledgement" }

local gamma = Proto("niclab_gamma", "niclab GAMMA frame")

local f = {
    protocol = ProtoField.uint8("niclab_gamma.protocol", "Protocol"),
    kind = ProtoField.uint8("niclab_gamma.kind", "Kind", base.DEC, KINDS, 0x0f),
    first = ProtoField.bool("niclab_gamma.first", "The message begins here", 8, nil, 0x10),
    last = ProtoField.bool("niclab_gamma.last", "The message ends here", 8, nil, 0x20),
    source_node = ProtoField.uint16("niclab_gamma.source_node", "Source node"),
    destination_node = ProtoField.uint16("niclab_gamma.destination_node", "Destination node"),
    source_port = ProtoField.uint8("niclab_gamma.source_port", "Source port", base.DEC, nil, 0x0f),
    source_driver = ProtoField.uint8("niclab_gamma.source_driver", "Driver that sends", base.DEC, nil, 0xf0),
    target_port = ProtoField.uint8("niclab_gamma.target_port", "Target port", base.DEC, nil, 0x0f),
    target_driver = ProtoField.uint8("niclab_gamma.target_driver", "Driver that is meant", base.DEC, nil, 0xf0),
    number = ProtoField.uint32("niclab_gamma.number", "Number of the frame, or of the last that was taken"),
    payload = ProtoField.bytes("niclab_gamma.payload", "Part of the message"),
    check = ProtoField.uint32("niclab_gamma.check", "CRC-32", base.HEX),
    check_ok = ProtoField.bool("niclab_gamma.check_ok", "CRC-32 is right"),
}
gamma.fields = f

local bad_check = ProtoExpert.new(
    "niclab_gamma.bad_check", "Wrong CRC-32", expert.group.CHECKSUM, expert.severity.ERROR)
local bad_length = ProtoExpert.new(
    "niclab_gamma.bad_length", "Shorter than its head, or of unknown kind", expert.group.MALFORMED,
    expert.severity.ERROR)
gamma.experts = { bad_check, bad_length }

-- A dissector's buffer begins after the Ethernet header.
local ethernet_destination = Field.new("eth.dst")
local ethernet_source = Field.new("eth.src")
local ethernet_type = Field.new("eth.type")

-- The last two bytes of a card's Ethernet address are its node's number.
local function node_of(address)
    return address(4, 2)
end

function gamma.dissector(buffer, pinfo, root)
    pinfo.cols.protocol = "GAMMA"
    local tree = root:add(gamma, buffer())
    local bytes = buffer:len()
    local covered = bytes - CHECK_BYTES
    local kind = bytes > 1 and bit.band(buffer(1, 1):uint(), 0xf)
    if not KINDS[kind] or covered < HEAD_BYTES then
        tree:add_proto_expert_info(bad_length)
        return bytes
    end
    local destination, source = ethernet_destination().range, ethernet_source().range
    tree:add(f.protocol, buffer(0, 1))
    tree:add(f.kind, buffer(1, 1))
    tree:add(f.source_node, node_of(source))
    tree:add(f.destination_node, node_of(destination))
    local number = buffer(4, 4):le_uint()
    local what = string.format("%s %u", KINDS[kind], number)
    tree:add(f.source_driver, buffer(2, 1))
    tree:add(f.target_driver, buffer(3, 1))
    if kind == DATA then
        tree:add(f.first, buffer(1, 1))
        tree:add(f.last, buffer(1, 1))
        tree:add(f.source_port, buffer(2, 1))
        tree:add(f.target_port, buffer(3, 1))
        what = what .. string.format(
            ", port %u to port %u, %u bytes", bit.band(buffer(2, 1):uint(), 0xf),
            bit.band(buffer(3, 1):uint(), 0xf), covered - HEAD_BYTES)
    end
    tree:add_le(f.number, buffer(4, 4))
    if covered > HEAD_BYTES then
        tree:add(f.payload, buffer(HEAD_BYTES, covered - HEAD_BYTES))
    end
    local check = buffer(covered, CHECK_BYTES)
    local sum = check_sequence(destination, source, ethernet_type().range, buffer(0, covered))
    local is_right = bit.tobit(sum) == bit.tobit(check:uint())
    tree:add(f.check, check)
    tree:add(f.check_ok, check, is_right):set_generated()
    if not is_right then
        tree:add_proto_expert_info(bad_check)
    end
    pinfo.cols.info = string.format("%u -> %u %s", node_of(source):uint(), node_of(destination):uint(), what)
    return bytes
end

return { protocol = PROTOCOL, dissector = gamma }
