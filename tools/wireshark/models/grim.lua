-- GRIM's frames: two words of the link, the head of a message (an active message, or bytes for a region), payload, and
-- a CRC-32 of all these. Loaded by niclab.lua. Wire format: device/model/src/models/grim/wire.rs.

local check_sequence = (...).crc32

local PROTOCOL = 10
local LINK_BYTES = 16
local MESSAGE_BYTES = 40
local CHECK_BYTES = 4
local HANDLER, MEMORY, VOID, ACKNOWLEDGEMENT, REFUSAL, REPORT = 1, 2, 3, 4, 5, 6
local KINDS = {
    [HANDLER] = "message", [MEMORY] = "memory", [VOID] = "void", [ACKNOWLEDGEMENT] = "acknowledgement",
    [REFUSAL] = "refusal",
    [REPORT] = "report",
}
-- Reasons for refused messages: REFUSED_ in device/abi/src/receive.rs.
local REASONS = {
    [0] = "none", [9] = "unfinished", [10] = "endpoint closed", [11] = "no payload region", [12] = "memory not exposed",
}

local grim = Proto("niclab_grim", "niclab GRIM frame")

local f = {
    protocol = ProtoField.uint8("niclab_grim.protocol", "Protocol"),
    kind = ProtoField.uint8("niclab_grim.kind", "Kind", base.DEC, KINDS, 0xf0),
    asks = ProtoField.bool("niclab_grim.asks", "Requests an immediate acknowledgement", 8, nil, 0x01),
    interrupt = ProtoField.bool("niclab_grim.interrupt", "Interrupt the receiver's host", 8, nil, 0x02),
    channel = ProtoField.uint8("niclab_grim.channel", "Channel"),
    reason = ProtoField.uint8("niclab_grim.reason", "Why the last failed", base.DEC, REASONS),
    destination_node = ProtoField.uint16("niclab_grim.destination_node", "Destination node"),
    source_node = ProtoField.uint16("niclab_grim.source_node", "Source node"),
    sequence = ProtoField.uint32("niclab_grim.sequence", "Sequence, or the first that was not taken"),
    owner = ProtoField.uint8("niclab_grim.owner", "Owner of the channel"),
    failures = ProtoField.uint24("niclab_grim.failures", "Messages of this owner that could not be delivered"),
    endpoint = ProtoField.uint16("niclab_grim.endpoint", "Target endpoint"),
    handler = ProtoField.uint32("niclab_grim.handler", "Handler"),
    integer = ProtoField.uint32("niclab_grim.integer", "Integer"),
    region = ProtoField.uint32("niclab_grim.region", "Region", base.HEX),
    place = ProtoField.uint64("niclab_grim.place", "Place in the region"),
    offset = ProtoField.uint32("niclab_grim.offset", "Offset of this fragment"),
    bytes = ProtoField.uint32("niclab_grim.bytes", "Bytes of the message"),
    payload = ProtoField.bytes("niclab_grim.payload", "Payload"),
    check = ProtoField.uint32("niclab_grim.check", "CRC-32", base.HEX),
    check_ok = ProtoField.bool("niclab_grim.check_ok", "CRC-32 is right"),
}
grim.fields = f

local bad_check = ProtoExpert.new("niclab_grim.bad_check", "Wrong CRC-32", expert.group.CHECKSUM, expert.severity.ERROR)
local bad_length = ProtoExpert.new(
    "niclab_grim.bad_length", "Wrong length for its kind, or unknown kind", expert.group.MALFORMED,
    expert.severity.ERROR)
local bad_fragment = ProtoExpert.new(
    "niclab_grim.bad_fragment", "The fragment goes beyond its message", expert.group.MALFORMED, expert.severity.ERROR)
local refused = ProtoExpert.new(
    "niclab_grim.refused", "The receiver had no room", expert.group.SEQUENCE, expert.severity.NOTE)
grim.experts = { bad_check, bad_length, bad_fragment, refused }

-- Adds the head of a message and its payload; returns its summary.
local function add_message(tree, kind, buffer, covered)
    local head = buffer(LINK_BYTES, MESSAGE_BYTES)
    tree:add(f.endpoint, head(6, 2))
    local what
    if kind == HANDLER then
        tree:add(f.handler, head(8, 4))
        for place = 12, 24, 4 do
            tree:add(f.integer, head(place, 4))
        end
        what = string.format("handler %u", head(8, 4):uint())
    else
        tree:add(f.region, head(8, 4))
        tree:add(f.place, head(12, 8))
        what = string.format("region 0x%x", head(8, 4):uint())
    end
    tree:add(f.offset, head(28, 4))
    tree:add(f.bytes, head(32, 4))
    local begin, all = head(28, 4):uint(), head(32, 4):uint()
    local length = covered - LINK_BYTES - MESSAGE_BYTES
    if length > 0 then
        tree:add(f.payload, buffer(LINK_BYTES + MESSAGE_BYTES, length))
        what = what .. string.format(", %u..%u of %u bytes", begin, begin + length, all)
    end
    if begin + length > all or (length > 0) ~= (all > 0) then
        tree:add_proto_expert_info(bad_fragment)
    end
    return string.format("to endpoint %u, %s", head(6, 2):uint(), what)
end

function grim.dissector(buffer, pinfo, root)
    pinfo.cols.protocol = "GRIM"
    local tree = root:add(grim, buffer())
    local bytes = buffer:len()
    local covered = bytes - CHECK_BYTES
    local kind = bytes > 1 and bit.rshift(buffer(1, 1):uint(), 4)
    local is_message = kind == HANDLER or kind == MEMORY
    local least = is_message and LINK_BYTES + MESSAGE_BYTES or LINK_BYTES
    if not KINDS[kind] or covered < least or (not is_message and covered > least) then
        tree:add_proto_expert_info(bad_length)
        return bytes
    end
    tree:add(f.protocol, buffer(0, 1))
    tree:add(f.kind, buffer(1, 1))
    tree:add(f.asks, buffer(1, 1))
    tree:add(f.interrupt, buffer(1, 1))
    tree:add(f.channel, buffer(2, 1))
    tree:add(f.destination_node, buffer(4, 2))
    tree:add(f.source_node, buffer(6, 2))
    tree:add(f.sequence, buffer(8, 4))
    local what = string.format("%s %u on channel %u", KINDS[kind], buffer(8, 4):uint(), buffer(2, 1):uint())
    if kind ~= VOID then
        tree:add(f.owner, buffer(12, 1))
    end
    if kind == ACKNOWLEDGEMENT or kind == REFUSAL or kind == REPORT then
        tree:add(f.reason, buffer(3, 1))
        tree:add(f.failures, buffer(13, 3))
    end
    if kind == REFUSAL then
        tree:add_proto_expert_info(refused)
    end
    if is_message then
        what = what .. " " .. add_message(tree, kind, buffer, covered)
    end
    local check = buffer(covered, CHECK_BYTES)
    local is_right = bit.tobit(check_sequence(buffer(0, covered))) == bit.tobit(check:uint())
    tree:add(f.check, check)
    tree:add(f.check_ok, check, is_right):set_generated()
    if not is_right then
        tree:add_proto_expert_info(bad_check)
    end
    pinfo.cols.info = string.format("%u -> %u %s", buffer(6, 2):uint(), buffer(4, 2):uint(), what)
    return bytes
end

return { protocol = PROTOCOL, dissector = grim }
